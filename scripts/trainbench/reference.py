"""Training of a Llama-shaped decoder in plain PyTorch, the peer and the oracle
of engine/train/exec.

  reference.py bench MODEL_DIR ROWS LENGTH STEPS RANK   a line of JSON per run:
      speed and memory of forward, cross entropy, backward and AdamW; RANK 0
      trains all weights
  reference.py grads CASES.json                         gradients in float64 of
      the cases in the file, written where each case says

The model is read from config.json and model.safetensors, without any library
but torch and numpy.
"""
import json
import math
import resource
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F


def load(folder, dtype):
    """The tensors of a folder under their names without "model."."""
    out = {}
    with open(folder + "/model.safetensors", "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
        data = f.read()
    for name, e in header.items():
        if name == "__metadata__":
            continue
        raw = data[e["data_offsets"][0]:e["data_offsets"][1]]
        if e["dtype"] == "BF16":
            bits = np.frombuffer(raw, dtype="<u2").astype("<u4") << 16
            values = bits.view("<f4")
        else:
            values = np.frombuffer(raw, dtype={"F32": "<f4", "F16": "<f2"}[e["dtype"]])
        tensor = torch.from_numpy(values.copy()).to(dtype).reshape(e["shape"])
        out[name.removeprefix("model.")] = tensor
    return out


def frequencies(c, head):
    r = c.get("rope_parameters") or c.get("rope_scaling") or {}
    theta = r.get("rope_theta", c.get("rope_theta", 10000.0))
    f = [theta ** (-2.0 * i / head) for i in range(head // 2)]
    kind = r.get("rope_type", r.get("type", "default"))
    if kind == "linear":
        f = [v / r["factor"] for v in f]
    if kind == "llama3":
        def slow(v):
            turns = r["original_max_position_embeddings"] * v / (2 * math.pi)
            low, high = r["low_freq_factor"], r["high_freq_factor"]
            keep = min(max((turns - low) / (high - low), 0.0), 1.0)
            return keep * v + (1 - keep) * v / r["factor"]
        f = [slow(v) for v in f]
    return torch.tensor(f, dtype=torch.float64)


class Decoder:
    """The model as functions over a dictionary of tensors."""

    def __init__(self, folder, dtype):
        with open(folder + "/config.json") as f:
            self.c = json.load(f)
        self.w = load(folder, dtype)
        self.dtype = dtype
        self.heads = self.c["num_attention_heads"]
        self.kv = self.c["num_key_value_heads"]
        self.head = self.c.get("head_dim") or self.c["hidden_size"] // self.heads
        self.freq = frequencies(self.c, self.head)
        self.lora = {}
        self.scale = 1.0

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self.w[name + ".weight"]

    def linear(self, x, name):
        y = F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))
        if name in self.lora:
            a, b = self.lora[name]
            y = y + self.scale * F.linear(F.linear(x, a), b)
        return y

    def turn(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def layer(self, i, x, cos, sin, mask):
        p = "layers.%d." % i
        n, s, _ = x.shape
        h = self.norm(x, p + "input_layernorm")
        q = self.linear(h, p + "self_attn.q_proj").view(n, s, self.heads, self.head)
        k = self.linear(h, p + "self_attn.k_proj").view(n, s, self.kv, self.head)
        v = self.linear(h, p + "self_attn.v_proj").view(n, s, self.kv, self.head).transpose(1, 2)
        if p + "self_attn.q_norm.weight" in self.w:
            q, k = self.norm(q, p + "self_attn.q_norm"), self.norm(k, p + "self_attn.k_norm")
        q, k = self.turn(q.transpose(1, 2), cos, sin), self.turn(k.transpose(1, 2), cos, sin)
        k = k.repeat_interleave(self.heads // self.kv, 1)
        v = v.repeat_interleave(self.heads // self.kv, 1)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.head) + mask
        a = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, s, -1)
        x = x + self.linear(a, p + "self_attn.o_proj")
        h = self.norm(x, p + "post_attention_layernorm")
        m = F.silu(self.linear(h, p + "mlp.gate_proj")) * self.linear(h, p + "mlp.up_proj")
        return x + self.linear(m, p + "mlp.down_proj")

    def logits(self, tokens, positions, segments):
        angle = positions.double()[:, None, :, None] * self.freq
        cos, sin = angle.cos().to(self.dtype), angle.sin().to(self.dtype)
        s = tokens.shape[1]
        seen = (segments[:, :, None] == segments[:, None, :]) & torch.ones(s, s, dtype=torch.bool).tril()
        mask = torch.zeros(seen.shape, dtype=self.dtype).masked_fill(~seen, -1e9)[:, None]
        x = self.w["embed_tokens.weight"][tokens]
        for i in range(self.c["num_hidden_layers"]):
            x = self.layer(i, x, cos, sin, mask)
        head = self.w.get("lm_head.weight", self.w["embed_tokens.weight"])
        return F.linear(self.norm(x, "norm"), head)

    def logprobs(self, tokens, targets, positions, segments):
        logits = self.logits(tokens, positions, segments)
        nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        return -nll.view(tokens.shape)


def linears(m):
    names = [n.removesuffix(".weight") for n in m.w if n.endswith("_proj.weight")]
    return sorted(names)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def bench(folder, rows, length, steps, rank):
    torch.manual_seed(1)
    m = Decoder(folder, torch.float32)
    if rank:
        for name in linears(m):
            out, inner = m.w[name + ".weight"].shape
            m.lora[name] = (torch.randn(rank, inner) / math.sqrt(inner), torch.zeros(out, rank))
        m.scale = 2.0
        train = [t.requires_grad_() for pair in m.lora.values() for t in pair]
    else:
        train = [t.requires_grad_() for t in m.w.values()]
    optimizer = torch.optim.AdamW(train, lr=1e-4)
    tokens = torch.randint(0, m.c["vocab_size"], (rows, length + 1))
    positions = torch.arange(length).expand(rows, length)
    segments = torch.zeros(rows, length, dtype=torch.long)
    times = []
    for _ in range(steps + 1):
        start = time.monotonic()
        loss = -m.logprobs(tokens[:, :-1], tokens[:, 1:], positions, segments).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.monotonic() - start)
    best = min(times[1:])
    mean = sum(times[1:]) / steps
    print(json.dumps({"seconds": mean, "best": best, "tokens_per_second": rows * length / mean, "peak_bytes": peak(),
                      "loss": loss.item(), "torch": torch.__version__, "threads": torch.get_num_threads()}))


def grads(path):
    with open(path) as f:
        cases = json.load(f)
    for case in cases:
        m = Decoder(case["model"], torch.float64)
        if "base" in case:  # frozen weights as they are stored, in float32
            for name, shape in case["base_shapes"].items():
                at = case["base_offsets"][name]
                count = int(np.prod(shape))
                values = np.fromfile(case["base"], dtype="<f4", count=count, offset=4 * at)
                m.w[name] = torch.from_numpy(values).double().reshape(shape)
        named = {}
        values = np.fromfile(case["lora"], dtype="<f4") if case.get("rank") else None
        if values is not None:
            m.scale = case["scale"]
            at = 0
            for name in case["modules"]:
                out, inner = m.w[name + ".weight"].shape
                pair = []
                for part, shape in (("lora_A", (case["rank"], inner)), ("lora_B", (out, case["rank"]))):
                    n = shape[0] * shape[1]
                    t = torch.from_numpy(values[at:at + n].copy()).double().reshape(shape).requires_grad_()
                    at += n
                    named[name + "." + part] = t
                    pair.append(t)
                m.lora[name] = tuple(pair)
        else:
            named = {n: t.requires_grad_() for n, t in m.w.items()}
        b = case["batch"]
        grid = (b["rows"], b["length"])
        tokens, targets, positions, segments = (torch.tensor(b[k]).reshape(grid) for k in ("tokens", "targets", "positions", "segments"))
        logp = m.logprobs(tokens, targets, positions, segments)
        weights = torch.tensor(b["weights"], dtype=torch.float64).reshape(grid)
        (-(weights * logp).sum()).backward()
        index, at = {}, 0
        with open(case["out"], "wb") as f:
            flat = [("logprobs", logp.detach())] + [(n, t.grad) for n, t in named.items()]
            for name, t in flat:
                f.write(t.contiguous().numpy().astype("<f8").tobytes())
                index[name] = [at, t.numel()]
                at += t.numel()
        with open(case["out"] + ".json", "w") as f:
            json.dump(index, f)


if __name__ == "__main__":
    torch.set_num_threads(2)
    if sys.argv[1] == "bench":
        bench(sys.argv[2], *[int(v) for v in sys.argv[3:7]])
    else:
        grads(sys.argv[2])
