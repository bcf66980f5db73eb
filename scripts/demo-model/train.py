#!/usr/bin/python3
"""Trains the demo model from nothing on the text of corpus.py; a checkpoint now and then, resumable.

AdamW; warm-up, constant rate, cosine decay to a tenth over the last part. The last steps run on rows of the full
context. Resuming before the decay has begun gives what one uninterrupted run would give, so --steps may still be
changed then. See README.md.
"""
import argparse
import json
import math
import os
import random
import time

import torch

import circuit
import corpus
import model as modelling
import parallel
import tokenizer

SEED = 20


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--out", default="build")
    p.add_argument("--steps", type=int, default=6000)
    p.add_argument("--rows", type=int, default=8, help="rows of 256 tokens in a step")
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--decay", type=float, default=0.35, help="share of the steps in which the rate falls")
    p.add_argument("--long", type=float, default=0.06, help="share of the steps, at the end, with full context")
    p.add_argument("--workers", type=int, default=2, help="processes of one thread that share a step")
    p.add_argument("--drill", type=int, default=500, help="steps after --circuit with many copying drills")
    p.add_argument("--circuit", type=int, default=1500, help="the step before which circuit.py is applied")
    p.add_argument("--save-every", type=int, default=100)
    return p.parse_args()


def rate(step, a):
    """The learning rate of a step."""
    start = a.steps * (1 - a.decay)
    since = step - a.circuit if step >= a.circuit else step
    if since < a.warmup:
        return a.lr * (since + 1) / a.warmup
    if step < start:
        return a.lr
    return a.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - start) / (a.steps - start))))


def get_tokenizer(folder, size):
    """The tokenizer of this folder, trained first if there is none."""
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        rng = random.Random(SEED)
        texts = ("".join(t for t, _ in corpus.document(rng)) for _ in range(40000))
        cut = [part for t in texts for part in t.replace("<|im_end|>", "<|im_start|>").split("<|im_start|>")]
        merges = tokenizer.train((c.replace("<|endoftext|>", "") for c in cut), size)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(tokenizer.Tokenizer(merges).to_json(), f, ensure_ascii=False)
    return tokenizer.load(path)


def valid_loss(net, ids, weights):
    """Mean cross-entropy of a batch, weighted."""
    with torch.no_grad():
        total = sum(sum(row[1:]) for row in weights)
        return parallel.summed_loss(net, torch.tensor(ids), torch.tensor(weights)).item() / total


def optimiser(net, lr):
    """AdamW; matrices decay, norms and biases don't."""
    matrices = [p for p in net.parameters() if p.dim() == 2]
    vectors = [p for p in net.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                             lr=lr, betas=(0.9, 0.98), eps=1e-9)


def install(net, tok):
    """Applies circuit.py, measured on text with many drills."""
    text = corpus.Packer(tok, f"{SEED}:circuit", 256)
    text.drills = 0.5
    ids = torch.tensor(text.batch(24)[0])[:, :-1]
    circuit.install(net, ids, tok.special["<|im_start|>"])


def save(path, **state):
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    cfg = modelling.Config()
    tok = get_tokenizer(a.out, cfg.vocab)
    assert tok.size == cfg.vocab, (tok.size, cfg.vocab)
    net = modelling.Decoder(cfg)
    team = parallel.Team(net, a.workers)
    opt = optimiser(net, a.lr)
    short = corpus.Packer(tok, f"{SEED}:train", 256)
    long = corpus.Packer(tok, f"{SEED}:long", cfg.context, long=True)
    valid = corpus.Packer(tok, f"{SEED}:valid", 256).batch(16)
    step, tokens, seconds, history, path = 0, 0, 0.0, [], os.path.join(a.out, "checkpoint.pt")
    if os.path.exists(path):
        s = torch.load(path)
        net.load_state_dict(s["net"])
        opt.load_state_dict(s["opt"])
        step, tokens, seconds, history = s["step"], s["tokens"], s["seconds"], s["history"]
        short.rng, short.pool, long.rng, long.pool = s["data"]
    print(f"{sum(p.numel() for p in net.parameters())} parameters, step {step} of {a.steps}", flush=True)
    mean, began = None, time.time() - seconds
    while step < a.steps:
        if step == a.circuit:
            install(net, tok)
            opt = optimiser(net, a.lr)  # what it remembered is about other weights
        for g in opt.param_groups:
            g["lr"] = rate(step, a)
        short.drills = 0.15 if step < a.circuit + a.drill else 0.03
        full = step >= a.steps * (1 - a.long)
        batch = long.batch(max(a.workers, a.rows // 4)) if full else short.batch(a.rows)
        loss = team.gradient(*batch)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        mean = loss if mean is None else 0.98 * mean + 0.02 * loss
        step, tokens = step + 1, tokens + a.rows * 256
        if step % a.save_every == 0 or step == a.steps:
            v = valid_loss(net, *valid)
            history.append({"step": step, "train": round(mean, 4), "valid": round(v, 4),
                            "tokens": tokens, "seconds": round(time.time() - began)})
            save(path, net=net.state_dict(), opt=opt.state_dict(), step=step, tokens=tokens, history=history, seconds=time.time() - began,
                 data=(short.rng, short.pool, long.rng, long.pool))
            print(json.dumps(history[-1]), flush=True)
        elif step % 25 == 0:
            print(f"step {step} loss {mean:.4f} {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
