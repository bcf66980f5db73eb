"""Data parallelism over processes of one thread each: one meeting per step instead of one per matrix product.

On a machine whose cores are shared this is about twice as fast as threads, which wait for each other in every
product. The parameters lie in shared memory; each helper writes its gradient to a shared buffer and the first
process adds the buffers in a fixed order, so the sum does not depend on timing.
"""
import torch
import torch.multiprocessing as mp
from torch.nn import functional as F


def summed_loss(net, ids, weights):
    """Weighted sum of the cross-entropy; logits are computed only where the weight is not 0."""
    h = net.hidden(ids[:, :-1])
    want = weights[:, 1:] > 0
    each = F.cross_entropy(net.logits(h[want]), ids[:, 1:][want], reduction="none")
    return (each * weights[:, 1:][want]).sum()


def backward(net, ids, weights, total):
    """Adds the gradient of (sum of losses / total) to the parameters; returns that share of the loss."""
    loss = summed_loss(net, torch.tensor(ids), torch.tensor(weights)) / total
    loss.backward()
    return loss.item()


def helper(net, pipe, other, buffer):
    """The loop of a helper process: take rows, leave a gradient; ends when the first process closes the pipe."""
    other.close()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    while True:
        try:
            ids, weights, total = pipe.recv()
        except EOFError:
            return
        net.zero_grad(set_to_none=True)
        loss = backward(net, ids, weights, total)
        torch.cat([p.grad.reshape(-1) for p in net.parameters()], out=buffer)
        pipe.send(loss)


class Team:
    """The first process and its helpers. Make it before any computation, as the helpers are forked."""

    def __init__(self, net, workers):
        net.share_memory()
        self.net, self.pipes, self.buffers = net, [], []
        context, size = mp.get_context("fork"), sum(p.numel() for p in net.parameters())
        for _ in range(workers - 1):
            mine, theirs = context.Pipe()
            buffer = torch.zeros(size).share_memory_()
            context.Process(target=helper, args=(net, theirs, mine, buffer), daemon=True).start()
            theirs.close()
            self.pipes.append(mine)
            self.buffers.append(buffer)

    def gradient(self, ids, weights):
        """Leaves the mean gradient of a batch in the parameters' .grad; returns the mean loss."""
        total = max(1.0, sum(sum(row[1:]) for row in weights))
        n = len(self.pipes) + 1
        for i, pipe in enumerate(self.pipes, 1):
            pipe.send((ids[i::n], weights[i::n], total))
        self.net.zero_grad(set_to_none=True)
        loss = backward(self.net, ids[::n], weights[::n], total)
        for pipe, buffer in zip(self.pipes, self.buffers):
            loss += pipe.recv()
            at = 0
            for p in self.net.parameters():
                p.grad += buffer[at:at + p.numel()].view_as(p)
                at += p.numel()
        return loss
