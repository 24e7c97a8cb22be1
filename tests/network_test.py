"""Tests jobs on several simulated machines (network_hosts.py): network cables are pulled, processes are killed, or
machines cannot reach each other. The job ends on all machines and reports the reason, nothing is left over, and the
same command resumes it, with the losses of an undisturbed run on one machine."""

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
    sets,
    train,
    wait_until,
    weight_bytes,
    write_config,
)
from network_hosts import Network, why_not
from open_mpi_5 import open_mpi_5  # noqa: F401: it is a fixture

LIMIT_S = 2  # seconds: the watchdog's limit
STEPS = 1000
RANKS = 4
HOSTS = "a:2,b:2"
MPIRUN = "mpirun --bind-to none --mca pml ob1 --mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none"
# Matches an error line that names machine b, or rank 2 or 3, which run on it.
OF_B = r"lockstep: error: (ranks? [23]\b|mpirun has lost b: )"
# Matches the beginning of a page that mpirun prints when a job fails.
PAGE = r"^(Primary job|mpirun|prterun|ORTE|PRTE) "

pytestmark = pytest.mark.skipif(DEVICE == "CUDA", reason="the machines are one, whose GPUs they would share")


@pytest.fixture
def open_mpi(request):
    """Returns the environment variables with which a test finds Open MPI: if its parameter is 5, PyPI's, otherwise the
    machine's own."""
    return request.getfixturevalue("open_mpi_5") if getattr(request, "param", None) == 5 else {}


# Lets a test run with the machine's own Open MPI and with Open MPI 5.
with_both_series = pytest.mark.parametrize(
    "open_mpi",
    [
        pytest.param(None, id="own"),
        pytest.param(5, id="open-mpi-5", marks=pytest.mark.all_tier("it installs Open MPI 5")),
    ],
    indirect=True,
)


@pytest.fixture
def network(tmp_path, open_mpi):
    """Yields a network of two machines: a, where commands start, and b."""
    if why_not():
        pytest.skip(why_not())
    with Network(tmp_path, ["a", "b"], open_mpi) as network:
        yield network


@pytest.fixture
def cluster(tmp_path, open_mpi):
    """Yields a network of three machines: a login node, where commands start and no ranks run, and the machines a and
    b."""
    if why_not():
        pytest.skip(why_not())
    with Network(tmp_path, ["login", "a", "b"], open_mpi) as network:
        yield network


def config_in(folder):
    limits = f"watchdog {{ collective_timeout_s: {LIMIT_S} heartbeat_timeout_s: {LIMIT_S} }}"
    more = f"max_steps: {STEPS} checkpoint {{ every_steps: 20 }} {limits}"
    return write_config(folder, digits_config(more, model='name: "mlp" mlp { hidden: [24] }'))


@pytest.fixture(scope="module")
def wholes():
    return {}


@pytest.fixture
def whole(tmp_path_factory, open_mpi, wholes):
    """Returns the folder of an undisturbed run on one machine, which is made once for each Open MPI."""
    path = open_mpi.get("PATH")
    if path not in wholes:
        folder = tmp_path_factory.mktemp("whole")
        run = train(config_in(folder), folder / "run", ranks=RANKS, env=open_mpi)
        assert run.status == DONE, run
        wholes[path] = folder / "run"
    return wholes[path]


class Job(Started):
    """Starts a job on one of the machines as a user does, with lockstep or with the user's own mpirun."""

    def __init__(self, network, folder, on="a", through="lockstep", words=(), env=None):
        self.network = network
        launcher = network[on].enter
        options = {"ranks": RANKS, "words": ["--hosts", HOSTS, *words]}
        if through == "mpirun":
            launcher, options = [*launcher, *MPIRUN.split(), "-n", RANKS, "--host", HOSTS], {}
        variables = {
            **network.variables,
            "OMPI_MCA_plm_rsh_agent": str(network.agent),
            "PRTE_MCA_plm_ssh_agent": str(network.agent),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # The simulated machines share the cores of one real machine, so idle ranks must yield. Open MPI cannot know
            # this.
            "OMPI_MCA_mpi_yield_when_idle": "1",
            **(env or {}),
        }
        super().__init__(config_in(folder), folder / "run", env=variables, launcher=launcher, **options)

    def ranks_on(self, name):
        """Returns the ids of the job's rank processes on the machine `name`."""
        here = self.network[name].processes()
        mine = [pid for pid, command in processes_of(self.run_dir).items() if command.startswith(LOCKSTEP)]
        return [pid for pid in mine if pid in here and pid != self.process.pid]

    def wait_until_trains(self):
        """Waits until the job has written a checkpoint from which it can resume."""
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
    """Checks that the same command resumes the job, which then ends like an undisturbed one."""
    with Job(network, folder, on) as job:
        job.expect_done(whole, starts=2)


@with_both_series
@pytest.mark.parametrize("through", ["lockstep", "mpirun"])
@pytest.mark.all_tier("the user's mpirun starts the same ranks", unless=lambda through: through == "lockstep")
def test_two_machines(network, tmp_path, whole, through):
    """Checks that two machines give the same bits as one. Open MPI sums in the same order, whatever transport the
    messages use."""
    with Job(network, tmp_path, through=through) as job:
        job.expect_done(whole)
    assert sorted(os.listdir(job.run_dir)) == sorted(os.listdir(whole))
    assert sorted(os.listdir(job.run_dir / "flight")) == [f"rank-{rank}" for rank in range(RANKS)]
    for step in checkpoints(job.run_dir):
        names = os.listdir(checkpoint_folder(job.run_dir, step))
        assert len([name for name in names if name.startswith("state-")]) == RANKS, names


@with_both_series
@pytest.mark.all_tier("a login node only holds the command")
def test_a_login_node(cluster, tmp_path, whole):
    """Starts, stops and resumes a job on a login node, which has no ranks."""
    with Job(cluster, tmp_path, "login") as job:
        job.wait_until_trains()
        status, out, err = job.stop()
        assert status == STOPPED, (out, err)
        cluster.wait_until_empty()
    (stopped,) = events(job.run_dir, "stopped")
    assert checkpoints(job.run_dir)[-1] == stopped["step"]
    expect_to_go_on(cluster, tmp_path, whole, on="login")


@with_both_series
def test_a_cable_is_pulled(network, tmp_path, whole):
    """Pulls a cable, so that the connection is silently lost: nothing reports the loss, and no message arrives. The
    ranks on both machines end by themselves, and the command on machine a does not wait for machine b."""
    with Job(network, tmp_path) as job:
        job.wait_until_trains()
        network.cut("b")
        job.wait_until_no_ranks("a", "b")
        status, out, err = job.end()
        assert status == PEER, (out, err)
        assert re.search(OF_B, err) and not re.search(PAGE, err, re.M), err
    network.mend("b")
    network.wait_until_empty()
    expect_to_go_on(network, tmp_path, whole)


@with_both_series
@pytest.mark.all_tier("a cable that is pulled ends the job in the same way, whichever ranks it leads to")
def test_the_cable_of_the_first_ranks_is_pulled(cluster, tmp_path, whole):
    """Checks that rank 2, the first rank on machine b, reports the loss of machine a."""
    with Job(cluster, tmp_path, "login") as job:
        job.wait_until_trains()
        cluster.cut("a")
        status, out, err = job.end()
        assert status == PEER, (out, err)
        assert "error: rank 0 gives no sign of life for 2 s" in err and "; rank 2 is " in err, err
        assert not re.search(PAGE, err, re.M), err
    cluster.mend("a")
    cluster.wait_until_empty()
    expect_to_go_on(cluster, tmp_path, whole, on="login")


@pytest.mark.all_tier("ranks end in the same way under the user's mpirun")
def test_a_cable_is_pulled_from_an_mpirun_of_its_users(network, tmp_path, whole):
    """Checks that ranks under the user's mpirun do not wait for the lost machine, although mpirun itself waits for its
    daemon on that machine until TCP times out."""
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
    """Checks that --restarts resumes the job after the cable is back. While the cable is out, each start fails and uses
    up one of the three restarts."""
    with Job(network, tmp_path, words=["--restarts", "3"]) as job:
        job.wait_until_trains()
        network.cut("b")
        job.wait_until_no_ranks("a", "b")
        network.mend("b")
        job.expect_done(whole, starts=2)
        assert "of 3 follows in 1 s" in job.texts()[1], job.texts()


@with_both_series
def test_a_machine_is_lost_for_good(network, tmp_path, whole):
    """Checks that, with --elastic, machine a goes on without machine b, with the same samples in each step."""
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


@pytest.mark.parametrize("open_mpi", [pytest.param(5, id="open-mpi-5")], indirect=True)
@pytest.mark.all_tier("it installs Open MPI 5")
def test_mpirun_notices_that_a_cable_is_pulled(network, tmp_path, whole):
    """Pulls a cable, which mpirun notices long before the watchdog does. The mpirun of Open MPI 5 then ends with status
    0."""
    env = {f"PRTE_MCA_oob_tcp_keepalive_{name}": "1" for name in ("time", "intvl", "probes")}
    limits = sets("watchdog.collective_timeout_s=600", "watchdog.heartbeat_timeout_s=600")
    with Job(network, tmp_path, words=limits, env=env) as job:
        job.wait_until_trains()
        network.cut("b")
        status, out, err = job.end()
        assert status == PEER, (out, err)
        assert "lockstep: error: mpirun has lost b: the machine, its network or the daemon there" in err, err
    network.mend("b")
    network.wait_until_empty()
    expect_to_go_on(network, tmp_path, whole)


@with_both_series
@pytest.mark.all_tier("the job ends as when its other processes there are lost")
def test_a_daemon_is_killed(network, tmp_path, whole):
    """Kills mpirun's daemon on machine b, with which the kernel ends the ranks there."""
    with Job(network, tmp_path) as job:
        job.wait_until_trains()
        network["b"].kill(("orted", "prted"))
        status, out, err = job.end()
        assert status == PEER, (out, err)
        assert re.search(OF_B, err) and not re.search(PAGE, err, re.M), err
        network.wait_until_empty()
    expect_to_go_on(network, tmp_path, whole)


@with_both_series
@pytest.mark.parametrize("through", ["lockstep", "mpirun"])
@pytest.mark.all_tier("a machine that is lost with --elastic ends the first start in the same way")
def test_all_is_killed_on_a_machine(network, tmp_path, whole, through, open_mpi):
    """Kills all processes on machine b. This closes their connections, as when a machine reboots. The user's mpirun ends
    with an exit status of its own. That of Open MPI 5 may end with status 0, before a rank can say what has happened."""
    with Job(network, tmp_path, through=through) as job:
        job.wait_until_trains()
        network["b"].kill()
        status, out, err = job.end()
        if through == "lockstep":
            assert status == PEER, (out, err)
        if through == "lockstep" or not open_mpi:
            assert status != DONE and re.search(OF_B, err), (out, err)
        network.wait_until_empty()
    expect_to_go_on(network, tmp_path, whole)


@pytest.mark.all_tier("a machine that is lost ends the job in the same way, whichever ranks it has")
def test_all_is_killed_on_the_machine_of_the_first_ranks(cluster, tmp_path, whole):
    """Checks that rank 2, the first rank on machine b, reports the loss of machine a."""
    with Job(cluster, tmp_path, "login") as job:
        job.wait_until_trains()
        cluster["a"].kill()
        status, out, err = job.end()
        assert status == PEER, (out, err)
        assert "error: rank 0 died: its process is gone; rank 2 is " in err, err
        cluster.wait_until_empty()
    expect_to_go_on(cluster, tmp_path, whole, on="login")


# The jobs of the following tests cannot start.


def expect_no_start(network, job):
    status, out, err = job.end()
    assert status == PEER, (out, err)
    assert re.search(r"^lockstep: error: .*\bb\b", err, re.M), (out, err)
    assert not job.run_dir.exists()
    network.wait_until_empty()


@with_both_series
def test_a_machine_that_cannot_be_reached(network, tmp_path):
    network.cut("b")
    with Job(network, tmp_path) as job:
        expect_no_start(network, job)


@with_both_series
@pytest.mark.all_tier("a machine that cannot be reached fails the start on every commit")
def test_a_firewall(network, tmp_path):
    """Sets up a firewall on machine b that only lets ssh through."""
    network["b"].run("ip rule add pref 1 ipproto tcp sport 22 lookup main")
    network["b"].run("ip rule add pref 2 ipproto tcp dport 1024-65534 unreachable")
    with Job(network, tmp_path) as job:
        expect_no_start(network, job)


# In the following tests machines have interfaces that other machines cannot reach, but that Open MPI considers usable.


def add_docker0(network):
    """Adds a bridge like Docker's, with the same address on all machines."""
    for host in network.hosts.values():
        host.run("ip link add name docker0 type bridge")
        host.run("ip address add 172.17.0.1/16 dev docker0")
        host.run("ip link set docker0 up")


@with_both_series
@pytest.mark.all_tier("an interface for containers changes only which network is chosen")
def test_a_bridge_for_containers(network, tmp_path, whole):
    add_docker0(network)
    with Job(network, tmp_path) as job:
        job.expect_done(whole)


@pytest.mark.all_tier("it changes only who chooses the network")
def test_a_network_that_its_user_names(network, tmp_path, whole):
    """Trains with the user's mpirun. An environment variable names the network that Open MPI shall use, as
    docs/clusters.md describes."""
    add_docker0(network)
    with Job(network, tmp_path, through="mpirun", env={"OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24"}) as job:
        job.expect_done(whole)
