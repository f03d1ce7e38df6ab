"""A user's model, for launchers that cut the user's own: the layers of a case as plain modules.

Tensor shards have the shapes that Megatron's would; only whole models can compute.
"""

import torch
from torch import nn
from torch.nn import functional

from expectation import Model

INIT = 0.4
"""Deviation of the initial tables: large enough that a gradient that is lost shows in the losses at once."""


class Embedding(nn.Module):
    def __init__(self, model: Model, shards: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(model.vocabulary // shards, model.hidden) * INIT)
        self.positions = nn.Embedding(model.positions, model.hidden) if model.positions else None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = functional.embedding(tokens, self.weight)
        if self.positions is None:
            return embedded
        return embedded + self.positions(torch.arange(tokens.shape[1], device=tokens.device))


class GptBlock(nn.Module):
    def __init__(self, model: Model, shards: int = 1) -> None:
        super().__init__()
        hidden = model.hidden
        self.heads, self.dropout = model.heads // shards, model.dropout
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden // shards), nn.Linear(hidden // shards, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden // shards), nn.Linear(4 * hidden // shards, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, hidden = x.shape
        split = (batch, tokens, self.heads, hidden // self.heads)
        query, key, value = (part.reshape(split).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended = self.out(seen.transpose(1, 2).reshape(x.shape))
        x = x + functional.dropout(attended, self.dropout, self.training)
        perceived = self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return x + functional.dropout(perceived, self.dropout, self.training)


class LlamaBlock(nn.Module):
    """Parameters alone: no test computes with it."""

    def __init__(self, model: Model, shards: int = 1) -> None:
        super().__init__()
        hidden, width = model.hidden, model.feed_forward // shards
        keys = hidden // model.heads * model.key_value_heads // shards
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.query, self.out = _plain(hidden, hidden // shards), _plain(hidden // shards, hidden)
        self.key, self.value = _plain(hidden, keys), _plain(hidden, keys)
        self.gate, self.up, self.down = _plain(hidden, width), _plain(hidden, width), _plain(width, hidden)


def _plain(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    def __init__(self, model: Model, shards: int = 1) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(model.hidden) if model.family == "gpt2" else nn.RMSNorm(model.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class Head(nn.Module):
    def __init__(self, model: Model, shards: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(model.vocabulary // shards, model.hidden) * INIT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight)


def classes(model: Model) -> list[type[nn.Module]]:
    """The class of each layer of a model, in order."""
    block = GptBlock if model.family == "gpt2" else LlamaBlock
    return [Embedding, *[block] * model.blocks, Norm, Head]


def whole(model: Model) -> nn.Sequential:
    """The uncut model, initialised the same way every time. A tied head uses the embedding's weight."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(kind(model) for kind in classes(model)))
    if model.tied:
        layers[-1].weight = layers[0].weight
    return layers


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def batch(model: Model, samples: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of an iteration and what follows them."""
    generator = torch.Generator().manual_seed(iteration)
    tokens = torch.randint(model.vocabulary, (samples, model.sequence + 1), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


STEP = 1.0
"""Step size of gradient descent."""

ITERATIONS = 3
"""How long models train."""


def agree(losses: list[float], uncut: list[float]) -> bool:
    """Whether losses are those of the uncut model, but for sums over micro-batches that round in another order."""
    return torch.allclose(torch.tensor(losses), torch.tensor(uncut), rtol=1e-5)


def train(model: Model, samples: int) -> list[float]:
    """The losses of the uncut model in one process, a whole batch at a time."""
    net = whole(model)
    optimizer = torch.optim.SGD(net.parameters(), lr=STEP)
    losses = []
    for iteration in range(ITERATIONS):
        tokens, labels = batch(model, samples, iteration)
        value = loss(net(tokens), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses
