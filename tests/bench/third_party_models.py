"""The models of others with which imported_against_torch.py and step_floor.py measure.

A model is a name in MODELS, or LIBRARY:MODEL@BATCH, such as timm:resnet26@128, where LIBRARY is timm, torchvision or hf
(Hugging Face's classifiers of sequences)."""

import functools

import torch
from torch import nn
from torch.nn import functional

# name -> (library and model, samples in a batch)
NAMED = {
    "efficientnet_b0": ("timm:efficientnet_b0", 256),
    "convnext_tiny": ("timm:convnext_tiny", 128),
    "vit_small": ("timm:vit_small_patch16_224", 256),
    "swin_tiny": ("timm:swin_tiny_patch4_window7_224", 128),
    "regnety_016": ("timm:regnety_016", 128),
    "resnet50": ("torchvision:resnet50", 256),
    "mobilenet_v3_large": ("torchvision:mobilenet_v3_large", 256),
    "bert": ("hf:Bert", 64),
    "distilbert": ("hf:DistilBert", 64),
    "unet": ("own:UNet", 32),
}
# Models for which nothing was tuned before they were first measured.
UNNAMED = {
    "convnextv2_tiny": ("timm:convnextv2_tiny", 96),
    "mobilevitv2_100": ("timm:mobilevitv2_100", 128),
    "mixer_b16": ("timm:mixer_b16_224", 128),
    "maxvit_tiny": ("timm:maxvit_tiny_rw_224", 64),
    "deit3_small": ("timm:deit3_small_patch16_224", 200),
    "densenet121": ("torchvision:densenet121", 128),
    "llama": ("hf:Llama", 64),
    "qwen3": ("hf:Qwen3", 64),
    "modernbert": ("hf:ModernBert", 32),
    "t5_encoder": ("own:T5Encoder", 64),
    "attention_unet": ("own:AttentionUNet", 32),
}
MODELS = NAMED | UNNAMED
# Config values for the Hugging Face models whose default size is far from 100 million parameters.
DECODER = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "intermediate_size": 2048,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
SIZES = {"Llama": DECODER, "Qwen3": DECODER | {"head_dim": 64, "vocab_size": 32000}}
TOKENS = 128


def convolutions(inputs, outputs):
    layers = []
    for channels in inputs, outputs:
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Gives `classes` scores for each pixel."""

    def __init__(self, width=64, classes=4):
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(convolutions(i, o) for i, o in zip([3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.join = nn.ModuleList(convolutions(2 * w, w) for w in widths[-2::-1])
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else functional.max_pool2d(x, 2))
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat([up(x), skip], 1))
        return self.out(x)


class Residual(nn.Module):
    """A block of diffusion models' U-Nets: group norms, SiLU, and a sum."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for channels in (inputs, outputs))
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, outputs, 3, padding=1) for channels in (inputs, outputs))
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        y = x
        for norm, convolution in zip(self.norms, self.convolutions):
            y = convolution(functional.silu(norm(y)))
        return self.skip(x) + y


class PixelAttention(nn.Module):
    """Self-attention of all pixels."""

    def __init__(self, width, heads=8):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(32, width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x):
        samples, width, rows, columns = x.shape
        qkv = self.qkv(self.norm(x)).reshape(samples, 3, self.heads, width // self.heads, rows * columns)
        q, k, v = qkv.transpose(-1, -2).unbind(1)
        y = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(-1, -2).reshape(samples, width, rows, columns))


class AttentionUNet(nn.Module):
    """A U-Net in the form of diffusion models', with attention at its two lower resolutions. Gives `classes` scores for
    each pixel."""

    def __init__(self, width=64, classes=4):
        super().__init__()
        widths = [width, 2 * width, 4 * width, 4 * width]
        attention = [nn.Identity, nn.Identity, PixelAttention, PixelAttention]
        self.stem = nn.Conv2d(3, width, 3, padding=1, stride=2)
        self.down = nn.ModuleList(
            nn.Sequential(Residual(i, o), a(o) if a is PixelAttention else a())
            for i, o, a in zip([width, *widths], widths, attention)
        )
        self.shrink = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1, stride=2) for w in widths[:-1])
        self.middle = nn.Sequential(Residual(widths[-1], widths[-1]), PixelAttention(widths[-1]), Residual(widths[-1], widths[-1]))
        above = [widths[-1], *widths[:0:-1]]
        self.up = nn.ModuleList(
            nn.Sequential(Residual(i + o, o), a(o) if a is PixelAttention else a())
            for i, o, a in zip(above, widths[::-1], attention[::-1])
        )
        self.out = nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, classes, 3, padding=1))

    def forward(self, x):
        x = self.stem(x)
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else self.shrink[i - 1](x))
            kept.append(x)
        x = self.middle(x)
        for i, block in enumerate(self.up):
            x = block(torch.cat([x, kept.pop()], 1))
            if kept:
                x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
        return functional.interpolate(self.out(x), scale_factor=2.0, mode="nearest")


class T5Encoder(nn.Module):
    """T5's encoder, the mean of its results over the tokens, and a linear layer."""

    def __init__(self, classes=3):
        super().__init__()
        import transformers

        sizes = dict(d_model=768, d_ff=2048, d_kv=64, num_layers=12, num_heads=12, feed_forward_proj="gated-gelu")
        self.config = transformers.T5Config(**sizes)
        self.encoder = transformers.T5EncoderModel(self.config)
        self.head = nn.Linear(768, classes)

    def forward(self, input_ids, attention_mask):
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(states.dtype)
        return self.head((states * weights).sum(1) / weights.sum(1))


OWN = {"UNet": UNet, "AttentionUNet": AttentionUNet, "T5Encoder": T5Encoder}


def parts_of(name):
    """Returns the library, the model's name there, and the samples in a batch."""
    if name not in MODELS and not (":" in name and "@" in name):
        raise SystemExit(f"{name}: neither one of {', '.join(MODELS)} nor LIBRARY:MODEL@BATCH")
    what, batch = MODELS[name] if name in MODELS else name.split("@")
    return *what.split(":"), int(batch)


def is_segmentation(name):
    library, model, _ = parts_of(name)
    return library == "own" and model.endswith("UNet")


@functools.cache
def image_size(name):
    """Returns the height of a timm model's images, which are squares; that of other models' images."""
    library, model, _ = parts_of(name)
    if library != "timm":
        return 256 if is_segmentation(name) else 224
    import timm

    return timm.get_pretrained_cfg(model, allow_unregistered=True).input_size[-1]


def make(name, batch, scripted=False):
    """Returns the module, its inputs by name for `batch` samples, and targets."""
    torch.manual_seed(0)
    library, what, _ = parts_of(name)
    size = image_size(name)
    if library == "hf" or what == "T5Encoder":
        if library == "hf":
            import transformers

            config = getattr(transformers, what + "Config")(num_labels=3, **SIZES.get(what, {}))
            model = getattr(transformers, what + "ForSequenceClassification")(config)
        else:
            model = T5Encoder()
        mask = torch.ones(batch, TOKENS, dtype=torch.long)
        mask[1::2, TOKENS * 3 // 4 :] = 0
        tokens = torch.randint(0, model.config.vocab_size, (batch, TOKENS))
        return model, {"input_ids": tokens, "attention_mask": mask}, torch.randint(0, 3, (batch,))
    if is_segmentation(name):
        return OWN[what](), {"x": torch.randn(batch, 3, size, size)}, torch.randint(0, 4, (batch, size, size))
    if library == "timm":
        import timm
        import timm.layers

        timm.layers.set_scriptable(scripted)
        model = timm.create_model(what, pretrained=False, num_classes=1000)
    else:
        import torchvision

        model = torchvision.models.get_model(what, num_classes=1000)
    return model, {"x": torch.randn(batch, 3, size, size)}, torch.randint(0, 1000, (batch,))
