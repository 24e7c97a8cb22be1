
º0.1.0 *ôseed: 1
device: CPU
run_dir: "/tmp/lockstep_older_run/runs/folds/run/fold-1"
epochs: 10
max_steps: 8
global_batch: 12
accumulation: 1
init_from: ""
data {
  format: CSV
  train: "/tmp/lockstep_older_run/data/table.csv"
  validation_fraction: 0
  classes: 3
  shuffle: true
  last_batch: KEEP
  csv {
    delimiter: ","
    header: true
    label_column: -1
    scale: 1
    label_columns: 1
    label: "choice"
    ignore: "id"
    category: "city"
    missing: MEAN
    label_names: true
    column {
      name: "age"
      mean: 54
      std: 16.596823354321316
      missing_indicator: true
    }
    column {
      name: "income"
      mean: 836.5671428571427
      std: 533.07324468721981
      missing_indicator: true
    }
    column {
      name: "city"
      category: "Bonn"
      category: "K\303\266ln"
      category: "Ulm"
    }
    column {
      name: "joined"
      mean: 18845.606249999997
      std: 347.34613786853458
      missing_indicator: true
      dates: TIMES
    }
    classes: "maybe"
    classes: "no"
    classes: "yes"
    missing_indicator: true
    scaling: STANDARD
    date: "joined"
    category_min_rows: 1
  }
  input_shape: 15
  task: CLASSIFICATION
  bad_samples {
    policy: STOP
    limit: 100
  }
  folds {
    count: 2
    fold: 1
    by: GROUP
    group: "city"
  }
  sampling {
    by: ONCE
    column: ""
  }
  standardize_targets: false
}
model {
  name: "mlp"
  mlp {
    hidden: 3
    batch_norm: false
    dropout: 0
    embed_categories: 0
  }
  label_smoothing: 0
  activation_checkpointing: false
}
optimizer {
  type: ADAMW
  lr: 0.02
  weight_decay: 0
  momentum: 0
  nesterov: false
  beta1: 0.9
  beta2: 0.999
  epsilon: 1e-08
  clip_norm: 0
  shard: false
  clip_value: 0
  no_decay: NONE
  trust: 0.001
  lr_scaling: OFF
  scaling_batch: 256
  ema_decay: 0
}
schedule {
  type: CONSTANT
  warmup_steps: 0
  final_fraction: 0
  factor: 0.1
  every_steps: 1000
  patience: 10
  first_fraction: 1e-08
}
ddp {
  first_bucket_bytes: 1048576
  bucket_bytes: 26214400
  missing_gradient: ERROR
  reduce_dtype: FP32
  broadcast_buffers: false
  sync_batch_norm: false
}
loader {
  threads: 0
  slots: 4
}
log {
  every_steps: 1
}
watchdog {
  collective_timeout_s: 300
  heartbeat_timeout_s: 30
}
precision: FP32
graph: true
deterministic: true
loss_scale {
  initial: 65536
  growth_interval: 2000
}
anomaly {
  policy: STOP
}
replace_head: false
debug {
  anomaly_detection: false
  launch_blocking: false
}
checkpoint {
  every_steps: 4
  every_epochs: 0
  keep: 100
  every_minutes: 5
  keep_every_steps: 0
  keep_best: ""
  max_mb_per_s: 0
}
observe {
  tensorboard: false
  histograms_every_steps: 0
  prometheus_port: 0
  prometheus_address: "127.0.0.1"
  prometheus_file: ""
  on_alert: ""
  stall_s: 300
  alert_below: 0.5
  readings_every_s: 1
  page_port: 0
  page_address: "127.0.0.1"
  memory_snapshot: false
}
profile {
  first_step: 0
  steps: 5
  every: 0
}
micro_batch: ACCUMULATION
early_stopping {
  metric: ""
  patience: 5
  min_delta: 0
}
loss {
  type: OF_TASK
  balanced: false
  gamma: 2
  delta: 1
  quantile: 0.5
}
2
model.safetensorsòﬂ±Æ÷˙©S“2!
state-0.safetensors¸8–ªﬁS„¯:

random:
step:
buffers:
schedule:
trainer:
	optimizer:
early_stoppingB
loss)\èÀÚ?B
accuracy§p=
◊£‡?B
f1#ªâÏ&≤€?B
log_loss`πBÀÚ?B
balanced_accuracyüÁyûÁy‚?B
macro_f1#ªâÏ&≤€?B
weighted_f1W\g¢¯ÿ?B
matthewsºXôîtÿ?B
quadratic_kappaîH6Óó√?B
map3/ñ¸b…/Ê?J23 training samplesP¶?¬¶ókàU