
±0.1.0 *Çseed: 1
device: CPU
run_dir: "/tmp/lockstep_older_run/runs/table/run"
epochs: 10
max_steps: 40
global_batch: 12
accumulation: 1
init_from: ""
data {
  format: CSV
  train: "/tmp/lockstep_older_run/data/table.csv"
  validation_fraction: 0.25
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
      mean: 54.187499999999993
      std: 18.037179484331805
      missing_indicator: true
    }
    column {
      name: "income"
      mean: 1239.3136363636361
      std: 1400.874417209779
      missing_indicator: true
    }
    column {
      name: "city"
      category: ""
      category: "Aachen"
      category: "Bonn"
      category: "K\303\266ln"
      category: "Mainz"
      category: "Trier"
      category: "Ulm"
    }
    column {
      name: "joined"
      mean: 18946.67769607843
      std: 363.11325061549536
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
  input_shape: 19
  task: CLASSIFICATION
  bad_samples {
    policy: STOP
    limit: 100
  }
  folds {
    count: 0
    fold: 0
    by: STRATIFIED
    group: ""
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
    hidden: 6
    hidden: 5
    batch_norm: true
    dropout: 0.1
    embed_categories: 2
  }
  label_smoothing: 0
  activation_checkpointing: false
}
optimizer {
  type: ADAMW
  lr: 0.02
  weight_decay: 0.05
  momentum: 0
  nesterov: false
  beta1: 0.9
  beta2: 0.999
  epsilon: 1e-08
  clip_norm: 1
  shard: false
  clip_value: 0
  no_decay: VECTORS
  trust: 0.001
  lr_scaling: OFF
  scaling_batch: 256
  ema_decay: 0.8
}
schedule {
  type: COSINE
  warmup_steps: 2
  final_fraction: 0.1
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
  every_steps: 6
  every_epochs: 0
  keep: 100
  every_minutes: 5
  keep_every_steps: 0
  keep_best: "accuracy"
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
  metric: "accuracy"
  patience: 2
  min_delta: 0
}
loss {
  type: OF_TASK
  class_weight: 0.92307692307692313
  class_weight: 1.0909090909090908
  class_weight: 1
  balanced: false
  gamma: 2
  delta: 1
  quantile: 0.5
}
2
model.safetensors‘›#±MëÀØ@2!
state-0.safetensors®W4◊¨Æ©O2¯:
trainer:
step:

random:
buffers:
schedule:
	optimizer:
early_stoppingB
loss,ÂÉÍhÚ?B
accuracy´™™™™™⁄?B
f1ïKπîKπ‘?B
log_loss‚æªÿnFÚ?B
balanced_accuracyºªªªªª€?B
macro_f1ïKπîKπ‘?B
weighted_f18Å8Å”?B
matthews€ˆ‘¢TÜ¿?B
quadratic_kappaY»B≤¿?B
map3«q«q‰?J36 training samplesPZaccuracy`îùVó˝¢Às