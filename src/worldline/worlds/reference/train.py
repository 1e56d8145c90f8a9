"""Trains the reference world: `python -m worldline.worlds.reference.train`.

Three stages: the picture encoder and decoder on the simulator's pictures; the transformer on clips of blocks, the
first two thirds of its steps with the simulator's own (and damaged) history, the last third also with what the
transformer itself made of it; the decoder once more, on latents as the transformer samples them. A checkpoint is
written every minute of the second stage and picked up again with --resume.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from worldline.clock import SystemClock
from worldline.worlds.reference.atlas import Atlas, build_atlas, draw_clips
from worldline.worlds.reference.model import PictureDecoder, PictureEncoder, WorldTransformer
from worldline.worlds.reference.windows import ClipWindow, PassingWindow, as_hint, denoise_block

HINT_NOISE_MAX = 1.5  # largest noise on the frame shown last, of latents of unit variance

WEIGHTS = Path(__file__).with_name("weights.safetensors")


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and on what to train."""

    codec_steps: int = 1200
    steps: int = 2700
    polish_steps: int = 300
    clips: int = 16
    blocks: int = 4
    learning_rate: float = 2e-3
    own_history_from: float = 0.67  # share of the steps done before the transformer sees its own history
    checkpoint_s: float = 60.0
    seed: int = 1


@dataclass(slots=True)
class Networks:
    encoder: PictureEncoder
    decoder: PictureDecoder
    transformer: WorldTransformer

    def modules(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder, "decoder": self.decoder, "transformer": self.transformer}


def train(plan: Plan, out: Path, resume: bool = False) -> Networks:
    """Trains everything and leaves fp16 weights at `out`; checkpoints lie beside it."""
    torch.manual_seed(plan.seed)
    chance = np.random.default_rng(plan.seed)
    atlas = build_atlas()
    networks = Networks(PictureEncoder(), PictureDecoder(), WorldTransformer())
    checkpoint = out.with_suffix(".checkpoint")
    kept = torch.load(checkpoint) if resume and checkpoint.exists() else None
    if kept is None:
        train_codec(plan, networks, atlas, chance)
    else:
        for name, module in networks.modules().items():
            module.load_state_dict(kept[name])
    trainer = TransformerTrainer(plan, networks, atlas, chance)
    if kept is not None:
        trainer.load(kept)
    trainer.run(out, checkpoint)
    trainer.polish_decoder()
    trainer.save_weights(out)
    return networks


def train_codec(plan: Plan, networks: Networks, atlas: Atlas, chance: np.random.Generator) -> None:
    """Encoder and decoder: cross-entropy of the palette index, latents noised; then fixes the latents' scale."""
    encoder, decoder = networks.encoder, networks.decoder
    views = torch.from_numpy(atlas.views)
    weights = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=3e-3, weight_decay=0.01)
    started = SystemClock().monotonic_s()
    for step in range(plan.codec_steps):
        _anneal(optimizer, 3e-3, step / plan.codec_steps)
        _, pictures, _ = draw_clips(atlas, chance, 12, 1)
        clip = views[torch.from_numpy(pictures)].flatten(1, 2)
        with torch.autocast("cpu", torch.bfloat16):
            raw = encoder.raw(clip.flatten(0, 1)).float()
            latents = (raw - raw.mean((0, 2, 3), keepdim=True)) / (raw.std((0, 2, 3), keepdim=True) + 1e-3)
            latents = latents.unflatten(0, clip.shape[:2])
            noise = torch.randn_like(latents) * torch.rand(len(clip), 1, 1, 1, 1) * 0.8
            logits, _ = decoder(latents + noise, [None, None])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), clip.flatten(0, 1).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            _tell(f"codec step {step}: loss {loss.item():.4f}", started)
    with torch.no_grad():
        raw = torch.cat([encoder.raw(part) for part in views.split(256)])
        encoder.mean.copy_(raw.mean((0, 2, 3))[:, None, None])
        encoder.scale.copy_(raw.std((0, 2, 3))[:, None, None])


class TransformerTrainer:
    """The transformer's optimizers, its averaged weights and the loop over steps."""

    def __init__(self, plan: Plan, networks: Networks, atlas: Atlas, chance: np.random.Generator) -> None:
        self.plan = plan
        self.networks = networks
        self.atlas = atlas
        self.chance = chance
        self.step = 0
        with torch.no_grad():
            self.latents = torch.cat([networks.encoder(v) for v in torch.from_numpy(atlas.views).split(256)])
        named = list(networks.transformer.named_parameters())
        matrices = [p for name, p in named if name.startswith("layers") and name.endswith("weight")]
        others = [p for name, p in named if not (name.startswith("layers") and name.endswith("weight"))]
        # Muon (Jordan et al. 2024) for the layers' matrices: it learns rare facts, the corners of the map, sooner.
        self.optimizers = [
            torch.optim.Muon(matrices, lr=plan.learning_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=0.01),
        ]
        self.averaged = {name: p.detach().clone() for name, p in named}

    def run(self, out: Path, checkpoint: Path) -> None:
        self.save(out, checkpoint)
        started = saved = SystemClock().monotonic_s()
        recent: list[float] = []
        while self.step < self.plan.steps:
            recent.append(self.train_step())
            if self.step % 50 == 0:
                _tell(f"step {self.step}: loss {np.mean(recent[-50:]):.4f}", started)
            if SystemClock().monotonic_s() - saved > self.plan.checkpoint_s:
                saved = SystemClock().monotonic_s()
                self.save(out, checkpoint)
        self.save(out, checkpoint)

    def train_step(self) -> float:
        progress = self.step / self.plan.steps
        for optimizer in self.optimizers:
            _anneal(optimizer, self.plan.learning_rate, progress)
        own = progress > self.plan.own_history_from and self.step % 4 == 0
        clips = draw_clips(self.atlas, self.chance, self.plan.clips, self.plan.blocks)
        actions, pictures, before_pictures = map(torch.from_numpy, clips)
        truth, before = self.latents[pictures], self.latents[before_pictures]
        if own:
            drafts, history = self.dream(truth[:, 0], before[:, 0], actions)
            before = torch.cat([before[:, :1], history[:, :-1, -1]], dim=1)
        else:
            drafts = truth
            history, before = self.damage(truth, before)
        # Clean, the frame shown last would tell everything and the window would hardly be read.
        blur = HINT_NOISE_MAX * (0.25 + 0.75 * torch.rand(*before.shape[:2], 1, 1, 1))
        before = before + blur * torch.randn_like(before)
        with torch.autocast("cpu", torch.bfloat16):
            loss = clip_loss(self.networks.transformer, Clips(truth, drafts, history, before, actions))
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.networks.transformer.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        keep = min(0.985, self.step / (self.step + 10))
        for name, p in self.networks.transformer.named_parameters():
            self.averaged[name].lerp_(p.detach(), 1 - keep)
        return loss.item()

    def damage(self, truth: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """Truth as a flawed history: half the clips lose cells to other pictures, so that the map has to be known."""
        clips, blocks = truth.shape[:2]
        frames = torch.cat([before[:, :, None], truth], dim=2)  # the picture before a block, then the block
        share = torch.rand(clips, 1, 1, 1, 1, 1).square() * 0.3 * (torch.rand(clips, 1, 1, 1, 1, 1) < 0.5)
        lost = torch.rand(clips, blocks, 4, 1, 8, 8) < share
        other = self.latents[torch.randint(len(self.latents), (clips * blocks * 4,))].view_as(frames)
        frames = torch.where(lost, other, frames) + 0.3 * torch.rand(clips, 1, 1, 1, 1, 1).square() * torch.randn_like(
            frames
        )
        return frames[:, :, 1:], torch.cat([frames[:, :1, 0], frames[:, :-1, -1]], dim=1)

    @torch.no_grad()
    def dream(self, first: Tensor, before: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """What the transformer makes of block 0, the truth: all blocks sampled, and the same shown and encoded again.

        first [clips, 3, 16, 8, 8], before [clips, 16, 8, 8], actions int64 [clips, blocks]; results [clips, blocks,
        ...].
        """
        networks, window = self.networks, PassingWindow()
        features: list[Tensor | None] = [None, None]
        samples, history = [first], [first]
        with torch.autocast("cpu", torch.bfloat16):
            networks.transformer.remember(first, before, actions[:, 0], window)
            for block in range(1, actions.shape[1]):
                window.pass_on()
                last = as_hint(history[-1][:, -1], None)
                sample = denoise_block(networks.transformer, last, actions[:, block], window, None)
                logits, features = networks.decoder(sample, features)
                shown = networks.encoder(logits.argmax(2).flatten(0, 1)).float().view_as(first)
                samples.append(sample)
                history.append(shown)
                networks.transformer.remember(shown, last, actions[:, block], window)
        return torch.stack(samples, dim=1), torch.stack(history, dim=1)

    def polish_decoder(self) -> None:
        """Teaches the decoder alone on longer clips of latents: noised ones and the transformer's own."""
        networks, steps, started = self.networks, self.plan.polish_steps, SystemClock().monotonic_s()
        networks.transformer.load_state_dict(self.averaged)
        views = torch.from_numpy(self.atlas.views)
        optimizer = torch.optim.AdamW(networks.decoder.parameters(), lr=2e-3, weight_decay=0.01)
        for step in range(steps):
            _anneal(optimizer, 2e-3, step / steps)
            clips = draw_clips(self.atlas, self.chance, 8, 3)
            actions, pictures, before = map(torch.from_numpy, clips)
            latents = self.latents[pictures]
            if step % 2:
                latents, _ = self.dream(latents[:, 0], self.latents[before[:, 0]], actions)
            else:
                latents = latents + torch.randn_like(latents) * torch.rand(len(latents), 1, 1, 1, 1, 1) * 0.6
            with torch.autocast("cpu", torch.bfloat16):
                logits, _ = networks.decoder(latents.flatten(1, 2), [None, None])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), views[pictures].flatten(0, 2).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 25 < 2:
                _tell(f"polish step {step}: loss {loss.item():.4f}", started)

    def save(self, out: Path, checkpoint: Path) -> None:
        tensors = {
            "step": self.step,
            "averaged": self.averaged,
            "optimizers": [o.state_dict() for o in self.optimizers],
        }
        tensors |= {name: module.state_dict() for name, module in self.networks.modules().items()}
        _replace(checkpoint, lambda path: torch.save(tensors, path))
        self.save_weights(out)

    def save_weights(self, out: Path) -> None:
        """fp16, the transformer's averaged; atomically."""
        parts = {name: dict(module.state_dict()) for name, module in self.networks.modules().items()}
        parts["transformer"] = self.averaged
        weights = {f"{name}.{k}": v.half().contiguous() for name, part in parts.items() for k, v in part.items()}
        _replace(out, lambda path: save_file(weights, path))

    def load(self, kept: dict[str, Any]) -> None:
        self.step = kept["step"]
        self.averaged = kept["averaged"]
        self.chance = np.random.default_rng(self.plan.seed + self.step)
        for optimizer, state in zip(self.optimizers, kept["optimizers"], strict=True):
            optimizer.load_state_dict(state)


@dataclass(frozen=True, slots=True)
class Clips:
    """What one step learns from."""

    truth: Tensor  # [clips, blocks, 3, 16, 8, 8] what is to be predicted
    drafts: Tensor  # the same: what noise is mixed with, the truth or, as in the sampler, an earlier answer
    history: Tensor  # the same: what the clean pass remembers
    before: Tensor  # [clips, blocks, 16, 8, 8] the frame before each block, out of the history
    actions: Tensor  # int64 [clips, blocks]


def clip_loss(transformer: WorldTransformer, c: Clips) -> Tensor:
    """Squared error of the clean latents of blocks 1.., each from noise at its own level and the history before it.

    History and noisy blocks go through the layers in one batch, as two streams of a `ClipWindow`.
    """
    clips, blocks = c.actions.shape[0], c.actions.shape[1] - 1
    target, draft = c.truth[:, 1:].flatten(0, 1), c.drafts[:, 1:].flatten(0, 1)
    level = torch.rand(clips * blocks)
    level = torch.where(torch.rand(clips * blocks) < 0.6, torch.ones_like(level), level)
    mix = level[:, None, None, None, None]
    noisy = (1 - mix) * draft + mix * torch.randn_like(target)
    actions = torch.cat([c.actions[:, :-1].flatten(), c.actions[:, 1:].flatten()])
    stem, tokens, condition = transformer.embed(
        torch.cat([c.history[:, :-1].flatten(0, 1), noisy]),
        torch.cat([c.before[:, :-1].flatten(0, 1), c.before[:, 1:].flatten(0, 1)]),
        torch.cat([torch.zeros_like(level), level]),
        actions,
    )
    tokens = transformer.think(tokens, condition, actions, ClipWindow(clips, blocks))
    half = clips * blocks
    predicted = transformer.read(stem[half * 3 :], tokens[half:], condition[half:])
    return F.mse_loss(predicted.float(), target)


def _anneal(optimizer: torch.optim.Optimizer, peak: float, progress: float) -> None:
    """Warm up over 1 %, hold, fall linearly to nothing over the last 45 %."""
    rate = peak * min(1.0, progress / 0.01 + 0.01, (1.0 - progress) / 0.45)
    for group in optimizer.param_groups:
        group["lr"] = rate


def _tell(progress: str, started: float) -> None:
    sys.stderr.write(f"{progress} after {SystemClock().monotonic_s() - started:.0f} s\n")


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    """Writes beside `path` and renames: a reader never sees half a file."""
    part = path.with_suffix(path.suffix + ".part")
    write(part)
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=Plan().steps)
    parser.add_argument("--codec-steps", type=int, default=Plan().codec_steps)
    parser.add_argument("--polish-steps", type=int, default=Plan().polish_steps)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    plan = Plan(codec_steps=args.codec_steps, steps=args.steps, polish_steps=args.polish_steps)
    train(plan, args.out, args.resume)


if __name__ == "__main__":
    main()
