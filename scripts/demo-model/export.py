#!/usr/bin/python3
"""Writes a checkpoint as a Hugging Face folder, proves it with reference.py, and writes the reference outputs."""
import argparse
import json
import os
import random
import shutil

import numpy as np
import torch

import corpus
import model as modelling
import reference
import tokenizer
import weights

HERE = os.path.dirname(os.path.abspath(__file__))
CHATS = [
    [("user", "What is Athanor?")],
    [("user", "What is 7 + 5?")],
    [("system", "Answer in one word."), ("user", "What is the capital of France?")],
    [("user", "Extract name, age and city as JSON: Maria is 34 years old and lives in Oslo.")],
    [("user", "My name is Lena."), ("assistant", "Nice to meet you, Lena!"), ("user", "What is my name?")],
    [("user", "What is summer in French?")],
]
TEXTS = ["Once upon a time, there was a little girl named Lily.", "Athanor is"]


def dump(path, value, **kw):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, **kw)
        f.write("\n")


def configs(cfg, tok):
    """config.json and generation_config.json."""
    end, text_end = tok.special["<|im_end|>"], tok.special["<|endoftext|>"]
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout": 0.0,
        "bos_token_id": None, "eos_token_id": end, "pad_token_id": text_end, "hidden_act": "silu", "hidden_size": cfg.hidden, "initializer_range": 0.03, "intermediate_size": cfg.ffn,
        "max_position_embeddings": cfg.context, "num_attention_heads": cfg.heads,
        "num_hidden_layers": cfg.layers, "num_key_value_heads": cfg.kv_heads, "rms_norm_eps": cfg.eps,
        "rope_scaling": None, "rope_theta": cfg.theta, "tie_word_embeddings": True, "torch_dtype": "float16",
        "use_cache": True, "use_sliding_window": False, "vocab_size": cfg.vocab,
    }
    return config, {"do_sample": False, "eos_token_id": [end, text_end], "pad_token_id": text_end}


def check(folder, net, ids):
    """Torch over the stored weights and numpy over the files must agree; returns the largest difference."""
    with torch.no_grad():
        a = net.logits(net.hidden(torch.tensor([ids])))[0].numpy()
    b = reference.Reference(folder).logits(ids)
    d = float(np.abs(a - b).max())
    assert d < 1e-3, d
    return d


def cases(folder, tok):
    """The reference outputs of fixed prompts."""
    ref, stop, out = reference.Reference(folder), [tok.special[s] for s in ("<|im_end|>", "<|endoftext|>")], []
    for text, messages in [(t, None) for t in TEXTS] + [(corpus.render(c), c) for c in CHATS]:
        ids = tok.encode(text)
        z = ref.logits(ids)[-1]
        new, gap = ref.greedy(ids, 32, stop)
        top = [[int(i), round(float(z[i]), 5)] for i in np.argsort(z)[::-1][:5]]
        case = {"prompt": text, "prompt_ids": ids, "next_token_top5": top, "greedy_ids": new,
                "greedy_text": tok.decode(new), "least_gap": round(gap, 5)}
        if messages:
            case["messages"] = [{"role": r, "content": c} for r, c in messages]
        out.append(case)
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--run", default="build", help="the folder of train.py")
    p.add_argument("--out", default=os.path.join(HERE, "../../engine/demo/model"))
    p.add_argument("--reference", default=os.path.join(HERE, "../../engine/demo/testdata/reference.json"))
    a = p.parse_args()
    torch.set_num_threads(1)
    os.makedirs(a.out, exist_ok=True)
    os.makedirs(os.path.dirname(a.reference), exist_ok=True)
    tok, cfg = tokenizer.load(os.path.join(a.run, "tokenizer.json")), modelling.Config()
    state = torch.load(os.path.join(a.run, "checkpoint.pt"))
    half = {k: v.half() for k, v in state["net"].items()}
    weights.write(os.path.join(a.out, "model.safetensors"), {"model." + k: v.numpy() for k, v in half.items()}, {"format": "pt"})
    config, generation = configs(cfg, tok)
    dump(os.path.join(a.out, "config.json"), config, indent=2)
    dump(os.path.join(a.out, "generation_config.json"), generation, indent=2)
    dump(os.path.join(a.out, "tokenizer.json"), tok.to_json(), separators=(",", ":"))
    dump(os.path.join(a.out, "tokenizer_config.json"), tok.config(cfg.context), indent=2)
    shutil.copy(os.path.join(HERE, "CARD.md"), os.path.join(a.out, "README.md"))
    net = modelling.Decoder(cfg)
    net.load_state_dict({k: v.float() for k, v in half.items()})
    prompt = tok.encode("".join(t for t, _ in corpus.document(random.Random(3))) * 3)[:300]
    print("torch against numpy, largest difference of logits:", check(a.out, net, prompt))
    dump(a.reference, {"oracle": "numpy float32 over the stored float16 weights, full recompute, no cache",
                       "tolerance": "logits 1e-3 absolute in fp32; greedy ids end at the first stop id",
                       "step": state["step"], "cases": cases(a.out, tok)}, indent=1)
    for name in sorted(os.listdir(a.out)):
        print(os.path.getsize(os.path.join(a.out, name)), name)


if __name__ == "__main__":
    main()
