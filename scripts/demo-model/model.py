"""The decoder in PyTorch: Qwen2 as Hugging Face has it (RMSNorm, half-split RoPE, GQA with biases on query, key and
value, SwiGLU, tied embeddings)."""
import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Config:
    vocab: int = 2048
    hidden: int = 256
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 32
    ffn: int = 512
    context: int = 1024
    theta: float = 10000.0
    eps: float = 1e-5


class RMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rope_tables(cfg):
    """cos and sin, each [context, head_dim/2]."""
    f = cfg.theta ** (-torch.arange(0, cfg.head_dim, 2).float() / cfg.head_dim)
    a = torch.arange(cfg.context).float()[:, None] * f[None]
    return a.cos(), a.sin()


def rotate(x, cos, sin):
    """Half-split rotation of x [B, H, T, D]."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        d = cfg.head_dim
        self.q_proj = nn.Linear(cfg.hidden, cfg.heads * d)
        self.k_proj = nn.Linear(cfg.hidden, cfg.kv_heads * d)
        self.v_proj = nn.Linear(cfg.hidden, cfg.kv_heads * d)
        self.o_proj = nn.Linear(cfg.heads * d, cfg.hidden, bias=False)

    def forward(self, x, cos, sin, mask, cache):
        b, t, _ = x.shape
        c, d = self.cfg, self.cfg.head_dim
        q = rotate(self.q_proj(x).view(b, t, c.heads, d).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(b, t, c.kv_heads, d).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, t, c.kv_heads, d).transpose(1, 2)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        g = c.heads // c.kv_heads
        # Query heads that share a key head are stacked along time, so that keys are never copied.
        q = q.reshape(b, c.kv_heads, g * t, d) * (1 / math.sqrt(d))
        s = torch.matmul(q, k.transpose(2, 3)).view(b, c.kv_heads, g, t, -1)
        p = torch.softmax(s + mask, -1).view(b, c.kv_heads, g * t, -1)
        y = torch.matmul(p, v).view(b, c.heads, t, d).transpose(1, 2).reshape(b, t, -1)
        return self.o_proj(y)


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.gate_proj = nn.Linear(cfg.hidden, cfg.ffn, bias=False)
        self.up_proj = nn.Linear(cfg.hidden, cfg.ffn, bias=False)
        self.down_proj = nn.Linear(cfg.ffn, cfg.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.input_layernorm = RMSNorm(cfg.hidden, cfg.eps)
        self.self_attn = Attention(cfg)
        self.post_attention_layernorm = RMSNorm(cfg.hidden, cfg.eps)
        self.mlp = MLP(cfg)

    def forward(self, x, cos, sin, mask, cache):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Parameter names are Hugging Face's, less the leading 'model.'."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.embed_tokens = nn.Embedding(cfg.vocab, cfg.hidden)
        self.layers = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = RMSNorm(cfg.hidden, cfg.eps)
        cos, sin = rope_tables(cfg)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, 0, 0.03 / (math.sqrt(2 * cfg.layers) if deep else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def hidden(self, ids, caches=None):
        """ids [B, T] -> final hidden states [B, T, hidden]; caches is a list of one list per layer, grown in place."""
        t = ids.shape[1]
        past = caches[0][0].shape[2] if caches and caches[0] else 0
        cos, sin = self.cos[past:past + t], self.sin[past:past + t]
        mask = torch.full((t, past + t), float("-inf")).triu(past + 1)
        x = self.embed_tokens(ids)
        for i, block in enumerate(self.layers):
            x = block(x, cos, sin, mask, None if caches is None else caches[i])
        return self.norm(x)

    def logits(self, h):
        return F.linear(h, self.embed_tokens.weight)

    @torch.no_grad()
    def greedy(self, ids, stop, limit):
        """Continues one list of ids until a stop id or limit new ones; returns the new ids without the stop id."""
        caches = [[] for _ in self.layers]
        feed, out = torch.tensor([ids]), []
        while len(out) < limit and len(ids) + len(out) < self.cfg.context:
            n = int(self.logits(self.hidden(feed, caches)[:, -1]).argmax())
            if n in stop:
                break
            out.append(n)
            feed = torch.tensor([[n]])
        return out
