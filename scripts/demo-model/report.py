#!/usr/bin/python3
"""Writes the losses of a run and the accuracy table (standard input) to the end of README.md."""
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = "<!-- result -->\n"


def main():
    s = torch.load(os.path.join(sys.argv[1], "checkpoint.pt"))
    rows = s["history"]
    pick = [h for i, h in enumerate(rows) if h["step"] % 500 == 0 or i == len(rows) - 1]
    path = os.path.join(HERE, "README.md")
    with open(path, encoding="utf-8") as f:
        head = f.read().split(MARK)[0]
    note = sys.argv[2] + "\n\n" if len(sys.argv) > 2 else ""
    losses = "".join(f"| {h['step']} | {h['tokens']} | {h['seconds']} | {h['train']} | {h['valid']} |\n" for h in pick)
    with open(path, "w", encoding="utf-8") as f:
        f.write(head + MARK + "\n## The stored weights\n\n" + note + "| step | tokens | seconds | training loss | loss on other text |\n"
                "|---:|---:|---:|---:|---:|\n" + losses + "\nGreedy answers to held-out prompts, right only if equal to the expected text:\n\n"
                + sys.stdin.read().strip() + "\n")


if __name__ == "__main__":
    main()
