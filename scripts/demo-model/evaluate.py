#!/usr/bin/python3
"""Greedy accuracy of an exported model on held-out prompts, per task, as a Markdown table."""
import argparse
import os
import random

import torch

import corpus
import model as modelling
import stories
import tokenizer
import weights

HERE = os.path.dirname(os.path.abspath(__file__))


def load(folder):
    """(model over the stored weights, tokenizer)."""
    net = modelling.Decoder(modelling.Config())
    net.load_state_dict({k[len("model."):]: torch.from_numpy(v) for k, v in
                         weights.read(os.path.join(folder, "model.safetensors")).items()})
    return net.eval(), tokenizer.load(os.path.join(folder, "tokenizer.json"))


def right(answer, item):
    """Exact match, space at the ends aside."""
    return answer.strip() == item.answer


@torch.no_grad()
def story_loss(net, tok, count):
    """Nats per token on new stories."""
    rng, total, n = random.Random("stories"), 0.0, 0
    for _ in range(count):
        ids = torch.tensor([tok.encode(stories.story(rng) + "<|endoftext|>")])
        z = net.logits(net.hidden(ids[:, :-1]))[0]
        total += torch.nn.functional.cross_entropy(z, ids[0, 1:], reduction="sum").item()
        n += ids.shape[1] - 1
    return total / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(HERE, "../../engine/demo/model"))
    p.add_argument("--per-task", type=int, default=100)
    p.add_argument("--wrong", type=int, default=0, help="wrong answers to show per task")
    a = p.parse_args()
    torch.set_num_threads(1)
    net, tok = load(a.model)
    stop = [tok.special[s] for s in ("<|im_end|>", "<|endoftext|>")]
    score, shown = {}, {}
    for task, turns, item in corpus.evaluation("held-out", a.per_task):
        if item.loose:
            continue
        got = tok.decode(net.greedy(tok.encode(corpus.render(turns)), stop, 96))
        score.setdefault(task, []).append(right(got, item))
        if not score[task][-1] and shown.get(task, 0) < a.wrong:
            shown[task] = shown.get(task, 0) + 1
            print(f"{task}: {turns} -> {got!r}, not {item.answer!r}")
    print("\n| task | right | of | share |\n|---|---:|---:|---:|")
    for task, s in score.items():
        print(f"| {task} | {sum(s)} | {len(s)} | {sum(s) / len(s):.2f} |")
    every = [x for s in score.values() for x in s]
    print(f"| **all** | {sum(every)} | {len(every)} | {sum(every) / len(every):.2f} |")
    print(f"\nNew stories: {story_loss(net, tok, 100):.3f} nats per token.")


if __name__ == "__main__":
    main()
