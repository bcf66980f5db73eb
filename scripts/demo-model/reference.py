"""An independent forward pass: numpy float32 over config.json and model.safetensors, no cache, no torch."""
import json
import os

import numpy as np

import weights


class Reference:
    """A Qwen2 decoder read from a Hugging Face folder."""

    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as f:
            self.c = json.load(f)
        self.w = weights.read(os.path.join(folder, "model.safetensors"))

    def norm(self, x, name):
        scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self.c["rms_norm_eps"]))
        return x * scale * self.w[name]

    def rope(self, x):
        """Rotates [T, heads, D]: element i with element i + D/2."""
        t, _, d = x.shape
        f = self.c["rope_theta"] ** (-np.arange(d // 2) * 2.0 / d)
        a = (np.arange(t)[:, None] * f)[:, None]
        cos, sin = np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)
        lo, hi = x[..., :d // 2], x[..., d // 2:]
        return np.concatenate([lo * cos - hi * sin, hi * cos + lo * sin], -1)

    def attention(self, x, p):
        c, t = self.c, len(x)
        h, kv = c["num_attention_heads"], c["num_key_value_heads"]
        d = c["hidden_size"] // h
        q, k, v = (x @ self.w[p + n + "_proj.weight"].T + self.w[p + n + "_proj.bias"] for n in "qkv")
        q, k, v = self.rope(q.reshape(t, h, d)), self.rope(k.reshape(t, kv, d)), v.reshape(t, kv, d)
        out = np.empty((t, h, d), np.float32)
        for i in range(h):
            j = i // (h // kv)
            s = q[:, i] @ k[:, j].T / np.float32(np.sqrt(d))
            s[np.triu_indices(t, 1)] = -np.inf
            e = np.exp(s - s.max(-1, keepdims=True))
            out[:, i] = e / e.sum(-1, keepdims=True) @ v[:, j]
        return out.reshape(t, h * d) @ self.w[p + "o_proj.weight"].T

    def logits(self, ids):
        """[T] -> [T, vocab]."""
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            x = x + self.attention(self.norm(x, p + "input_layernorm.weight"), p + "self_attn.")
            y = self.norm(x, p + "post_attention_layernorm.weight")
            g = y @ self.w[p + "mlp.gate_proj.weight"].T
            y = g / (1 + np.exp(-g)) * (y @ self.w[p + "mlp.up_proj.weight"].T)
            x = x + y @ self.w[p + "mlp.down_proj.weight"].T
        return self.norm(x, "model.norm.weight") @ self.w["model.embed_tokens.weight"].T

    def greedy(self, ids, limit, stop):
        """Up to limit new ids, the stop id included where one comes, and the least gap between best and second best."""
        out, gap = [], np.inf
        while len(out) < limit and not (out and out[-1] in stop):
            z = self.logits(ids + out)[-1]
            best = np.argsort(z)[::-1][:2]
            gap = min(gap, float(z[best[0]] - z[best[1]]))
            out.append(int(best[0]))
        return out, gap
