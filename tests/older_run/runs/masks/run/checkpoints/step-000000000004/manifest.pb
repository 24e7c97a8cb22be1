
√0.1.0 *·seed: 1
device: CPU
run_dir: "/tmp/lockstep_older_run/runs/masks/run"
epochs: 10
max_steps: 8
global_batch: 4
accumulation: 1
init_from: ""
data {
  format: IMAGES
  train: "/tmp/lockstep_older_run/data/scenes/images"
  train: "/tmp/lockstep_older_run/data/scenes/masks"
  validation_fraction: 0.25
  classes: 3
  shuffle: true
  last_batch: KEEP
  mean: 0.5
  std: 0.25
  input_shape: 3
  input_shape: 8
  input_shape: 8
  task: SEGMENTATION
  images {
    size: 8
    min_area: 0.4
    max_area: 1
    max_stretch: 1.3333333333333333
    mirror: true
    center: 0.875
    cache: OFF
    cache_mib: 4096
    decode: AUTO
    exif_orientation: false
    mask_values: 0
    mask_values: 1
    mask_values: 2
    mask_ignored: 9
  }
  bad_samples {
    policy: STOP
    limit: 100
  }
  augment {
    brightness: 0
    contrast: 0
    saturation: 0
    hue: 0
    mixup: 0
    cutmix: 0
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
  name: "imported"
  label_smoothing: 0
  activation_checkpointing: true
  imported {
    file: "/tmp/lockstep_older_run/data/unet.lsm"
  }
}
optimizer {
  type: ADAMW
  lr: 0.01
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
  class_weight: 1
  class_weight: 2
  class_weight: 0.5
  balanced: false
  gamma: 2
  delta: 1
  quantile: 0.5
}
2
model.safetensorsÏ'Íÿ_I‰h$p2"
state-0.safetensorsÏÅàEÆ|Wúu:
early_stopping:
schedule:

random:
	optimizer:
step:
buffers:
trainerB
lossÅ\Å,5Ï?B
accuracyí$Ií$IÊ?B
iou4GÛp4◊?B
diceSWΩX¿Mﬂ?J6 training samplesJMimages ef0adbec30569840 of classes 0a004cae4d2941f2 with masks of 0 1 2 not 9PkπΩ…+…i§