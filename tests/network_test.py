"""Jobs on several machines (network_hosts.py) whose cables are pulled, that are killed, or that cannot find each other:
the job ends everywhere and says why, nothing is left, and the same command goes on with the losses of a run on one
machine that nothing happened to."""

import os
import re
import signal

import pytest

from harness import (
    DEVICE,
    DONE,
    LOCKSTEP,
    PEER,
    STOPPED,
    Started,
    checkpoint_folder,
    checkpoints,
    digits_config,
    events,
    losses_by_step,
    processes_of,
    train,
    wait_until,
    weight_bytes,
    write_config,
)
from network_hosts import Network, why_not

LIMIT_S = 2  # of the watchdog
STEPS = 1000
RANKS = 4
HOSTS = "a:2,b:2"
MPIRUN = "mpirun --bind-to none --mca pml ob1 --mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none"
OF_B = r"lockstep: error: ranks? [23]\b"  # a line that names one of b's, or both

pytestmark = pytest.mark.skipif(DEVICE == "CUDA", reason="the machines are one, whose GPUs they would share")


@pytest.fixture
def network(tmp_path):
    """A machine to start from and another one."""
    if why_not():
        pytest.skip(why_not())
    with Network(tmp_path, ["a", "b"]) as network:
        yield network


@pytest.fixture
def cluster(tmp_path):
    """A login node, which has no ranks, and two more machines."""
    if why_not():
        pytest.skip(why_not())
    with Network(tmp_path, ["login", "a", "b"]) as network:
        yield network


def config_in(folder):
    limits = f"watchdog {{ collective_timeout_s: {LIMIT_S} heartbeat_timeout_s: {LIMIT_S} }}"
    more = f"max_steps: {STEPS} checkpoint {{ every_steps: 20 }} {limits}"
    return write_config(folder, digits_config(more, model='name: "mlp" mlp { hidden: [24] }'))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run on one machine that nothing happens to."""
    folder = tmp_path_factory.mktemp("whole")
    run = train(config_in(folder), folder / "run", ranks=RANKS)
    assert run.status == DONE, run
    return folder / "run"


class Job(Started):
    """A job that a user starts on one of the machines, through lockstep or an mpirun of the user's own."""

    def __init__(self, network, folder, on="a", through="lockstep", words=(), env=None):
        self.network = network
        launcher = network[on].enter
        options = {"ranks": RANKS, "words": ["--hosts", HOSTS, *words]}
        if through == "mpirun":
            launcher, options = [*launcher, *MPIRUN.split(), "-n", RANKS, "--host", HOSTS], {}
        variables = {
            "OMPI_MCA_plm_rsh_agent": str(network.agent),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # The machines share this one's cores, which Open MPI does not know.
            "OMPI_MCA_mpi_yield_when_idle": "1",
            **(env or {}),
        }
        super().__init__(config_in(folder), folder / "run", env=variables, launcher=launcher, **options)

    def ranks_on(self, name):
        """The ids of its ranks' processes there."""
        here = self.network[name].processes()
        mine = [pid for pid, command in processes_of(self.run_dir).items() if command.startswith(LOCKSTEP)]
        return [pid for pid in mine if pid in here and pid != self.process.pid]

    def wait_until_trains(self):
        """Waits until the job trains and has a checkpoint from which it can go on."""
        self.wait_for("checkpoint")

    def wait_until_no_ranks(self, *names):
        wait_until(lambda: not any(self.ranks_on(name) for name in names))

    def expect_done(self, whole, starts=1):
        status, out, err = self.end()
        assert status == DONE, (out, err)
        assert losses_by_step(self.run_dir) == losses_by_step(whole), (out, err)
        assert weight_bytes(self.run_dir) == weight_bytes(whole)
        assert len(events(self.run_dir, "start")) == starts, (out, err)
        assert len(events(self.run_dir, "resume")) == starts - 1, (out, err)
        self.network.wait_until_empty()


def expect_to_go_on(network, folder, whole, on="a"):
    """Expects that the same command goes on, and that the job ends as it would have."""
    with Job(network, folder, on) as job:
        job.expect_done(whole, starts=2)


@pytest.mark.parametrize("through", ["lockstep", "mpirun"])
@pytest.mark.all_tier("the user's mpirun starts the same ranks", unless=lambda through: through == "lockstep")
def test_two_machines(network, tmp_path, whole, through):
    """The same bits as on one machine: Open MPI adds up in the same order, whatever the messages go through."""
    with Job(network, tmp_path, through=through) as job:
        job.expect_done(whole)
    assert sorted(os.listdir(job.run_dir)) == sorted(os.listdir(whole))
    assert sorted(os.listdir(job.run_dir / "flight")) == [f"rank-{rank}" for rank in range(RANKS)]
    for step in checkpoints(job.run_dir):
        names = os.listdir(checkpoint_folder(job.run_dir, step))
        assert len([name for name in names if name.startswith("state-")]) == RANKS, names


@pytest.mark.all_tier("a login node only holds the command")
def test_a_login_node(cluster, tmp_path, whole):
    """No rank is where the command is; it stops the job there, and goes on."""
    with Job(cluster, tmp_path, "login") as job:
        job.wait_until_trains()
        status, out, err = job.stop()
        assert status == STOPPED, (out, err)
        cluster.wait_until_empty()
    (stopped,) = events(job.run_dir, "stopped")
    assert checkpoints(job.run_dir)[-1] == stopped["step"]
    expect_to_go_on(cluster, tmp_path, whole, on="login")


def test_a_cable_is_pulled(network, tmp_path, whole):
    """Nothing says that the connection is gone, and nothing comes through: each machine's ranks end by themselves, and
    the command does not wait for the other one."""
    with Job(network, tmp_path) as job:
        job.wait_until_trains()
        network.cut("b")
        job.wait_until_no_ranks("a", "b")
        status, out, err = job.end()
        assert status == PEER, (out, err)
        assert re.search(OF_B, err), err
    network.mend("b")
    network.wait_until_empty()
    expect_to_go_on(network, tmp_path, whole)


@pytest.mark.all_tier("ranks end in the same way under the user's mpirun")
def test_a_cable_is_pulled_from_an_mpirun_of_its_users(network, tmp_path, whole):
    """It waits for its daemon on the other machine, as long as TCP does; the ranks do not."""
    with Job(network, tmp_path, through="mpirun") as job:
        job.wait_until_trains()
        network.cut("b")
        job.wait_until_no_ranks("a", "b")
        assert re.search(OF_B, job.texts()[1]), job.texts()
    network.mend("b")
    network.wait_until_empty()
    expect_to_go_on(network, tmp_path, whole)


@pytest.mark.all_tier("a cable that is pulled ends the job on every commit")
def test_a_cable_is_pulled_and_put_back(network, tmp_path, whole):
    """Starts while it is out fail, and use up restarts."""
    with Job(network, tmp_path, words=["--restarts", "3"]) as job:
        job.wait_until_trains()
        network.cut("b")
        job.wait_until_no_ranks("a", "b")
        network.mend("b")
        job.expect_done(whole, starts=2)
        assert "of 3 follows in 1 s" in job.texts()[1], job.texts()


def test_a_machine_is_lost_for_good(network, tmp_path, whole):
    """The others go on without it, in steps of the same samples."""
    with Job(network, tmp_path, words=["--restarts", "3", "--elastic"]) as job:
        job.wait_until_trains()
        network["b"].kill()
        network.cut("b")
        status, out, err = job.end()
    assert status == DONE, (out, err)
    assert "warning: going on with a:2 alone" in err, err
    assert [e["world_size"] for e in events(job.run_dir, "start")] == [RANKS, RANKS // 2]
    losses, expected = losses_by_step(job.run_dir), losses_by_step(whole)
    assert losses.keys() == expected.keys()
    for step in expected:
        assert losses[step] == pytest.approx(expected[step], rel=1e-3), step


@pytest.mark.all_tier("the job ends as when other processes of it are lost")
def test_mpirun_is_killed(network, tmp_path, whole):
    with Job(network, tmp_path) as job:
        job.wait_until_trains()
        os.kill(job.child(), signal.SIGKILL)
        status, out, err = job.end()
        assert status == PEER, (out, err)
        assert "error: mpirun was killed by signal 9 (Killed), and all of the job with it" in err, err
        network.wait_until_empty()
    expect_to_go_on(network, tmp_path, whole)


@pytest.mark.parametrize("through", ["lockstep", "mpirun"])
@pytest.mark.all_tier("a machine that is lost with --elastic ends the first start in the same way")
def test_all_is_killed_on_a_machine(network, tmp_path, whole, through):
    """As when it reboots: its connections are closed."""
    with Job(network, tmp_path, through=through) as job:
        job.wait_until_trains()
        network["b"].kill()
        status, out, err = job.end()
        # mpirun has one of its own.
        assert status == PEER if through == "lockstep" else status != DONE, (out, err)
        assert re.search(OF_B, err), err
        network.wait_until_empty()
    expect_to_go_on(network, tmp_path, whole)


@pytest.mark.all_tier("a machine that is lost ends the job in the same way, whichever ranks it has")
def test_all_is_killed_on_the_machine_of_the_first_ranks(cluster, tmp_path, whole):
    """The first rank on the other machine says it."""
    with Job(cluster, tmp_path, "login") as job:
        job.wait_until_trains()
        cluster["a"].kill()
        status, out, err = job.end()
        assert status == PEER, (out, err)
        assert "error: rank 0 died: its process is gone; rank 2 is " in err, err
        cluster.wait_until_empty()
    expect_to_go_on(cluster, tmp_path, whole, on="login")


# Jobs that cannot start.


def expect_no_start(network, job):
    status, out, err = job.end()
    assert status == PEER, (out, err)
    assert re.search(r"^lockstep: error: .*\bb\b", err, re.M), (out, err)
    assert not job.run_dir.exists()
    network.wait_until_empty()


def test_a_machine_that_cannot_be_reached(network, tmp_path):
    network.cut("b")
    with Job(network, tmp_path) as job:
        expect_no_start(network, job)


@pytest.mark.all_tier("a machine that cannot be reached fails the start on every commit")
def test_a_firewall(network, tmp_path):
    """The firewall lets nothing through but ssh."""
    network["b"].run("ip rule add pref 1 ipproto tcp sport 22 lookup main")
    network["b"].run("ip rule add pref 2 ipproto tcp dport 1024-65534 unreachable")
    with Job(network, tmp_path) as job:
        expect_no_start(network, job)


# Interfaces that other machines cannot reach, and that Open MPI takes for good ones.


def add_docker0(network):
    """Adds the bridge as Docker makes it, with one address on all machines."""
    for host in network.hosts.values():
        host.run("ip link add name docker0 type bridge")
        host.run("ip address add 172.17.0.1/16 dev docker0")
        host.run("ip link set docker0 up")


@pytest.mark.all_tier("an interface for containers changes only which network is chosen")
def test_a_bridge_for_containers(network, tmp_path, whole):
    add_docker0(network)
    with Job(network, tmp_path) as job:
        job.expect_done(whole)


@pytest.mark.all_tier("it changes only who chooses the network")
def test_a_network_that_its_user_names(network, tmp_path, whole):
    """As docs/clusters.md says."""
    add_docker0(network)
    with Job(network, tmp_path, through="mpirun", env={"OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24"}) as job:
        job.expect_done(whole)
