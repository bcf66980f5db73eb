"""Writes a copying circuit into the weights by hand, which training then refines.

Most tasks need to find an earlier occurrence of the current token and to repeat what followed it. A net of this size learns
that only after many millions of tokens; but it is known what it learns (an "induction head": Olsson et al., 2022), so the
four heads of one key group in the first layer and of one in the third are overwritten to do it:

- first layer: position alone decides (biases and RoPE), two heads look at the token itself and two at the one before, and
  write a whitened projection of it to a subspace of the residual stream that is cleared of everything else;
- third layer: the query is the current token, the key the token before, the value the token itself, all read from those
  subspaces; the output is written in the direction in which the tied output matrix sees that token. Where nothing
  matches, the heads rest on a token that marks the beginning of a message, whose value is nothing.
"""
import torch

PEAK = 7.0        # amplitude of the positional biases
FAST = 4          # rotary pairs that tell neighbouring positions apart
SLOW = range(7, 15)  # rotary pairs slow enough to compare contents over some hundred tokens
STILL = 15        # the slowest pair, in which position hardly counts


@torch.no_grad()
def residual(net, ids, layer):
    """The residual stream before a layer, or before the last norm, [tokens, hidden]."""
    keep = []
    norm = net.layers[layer].input_layernorm if layer < len(net.layers) else net.norm
    hook = norm.register_forward_hook(lambda m, i, o: keep.append(i[0]))
    net.hidden(ids)
    hook.remove()
    return keep[0].reshape(-1, keep[0].shape[-1])


def look_back(attn, group, projection, shift, spaces, strength):
    """The first layer's group: head i sees the token i % 2 positions back and writes its projection to spaces[i % 2]."""
    c, d = attn.cfg, attn.cfg.head_dim
    freq = c.theta ** (-torch.arange(0, d, 2).float() / d)[:FAST]
    g = c.heads // c.kv_heads
    k = slice(group * d, group * d + d)
    attn.k_proj.weight[k], attn.k_proj.bias[k] = 0, 0
    attn.k_proj.bias[group * d:group * d + FAST] = PEAK
    attn.v_proj.weight[k], attn.v_proj.bias[k] = projection, -shift
    for i in range(g):
        q = (group * g + i) * d
        attn.q_proj.weight[q:q + d], attn.q_proj.bias[q:q + d] = 0, 0
        attn.q_proj.bias[q:q + FAST] = PEAK * torch.cos(freq * (i % 2))
        attn.q_proj.bias[q + d // 2:q + d // 2 + FAST] = -PEAK * torch.sin(freq * (i % 2))
        attn.o_proj.weight[:, q:q + d] = spaces[i % 2] * strength / (g / 2)


def induce(attn, group, current, before, rest, out, sharp, hold):
    """The third layer's group: query from current, key from before, value from current, written along out. rest is the
    features of the token to rest on, hold its score."""
    c, d = attn.cfg, attn.cfg.head_dim
    g, half = c.heads // c.kv_heads, d // 2
    rows = torch.tensor(list(SLOW) + [r + half for r in SLOW])
    k, unit = slice(group * d, group * d + d), rest / rest.norm()
    attn.k_proj.weight[k], attn.k_proj.bias[k] = 0, 0
    attn.k_proj.weight[group * d + rows] = sharp * before[rows]
    attn.k_proj.weight[group * d + STILL] = unit @ current / rest.norm()
    attn.v_proj.weight[k], attn.v_proj.bias[k] = current - unit[:, None] * (unit @ current), 0
    for i in range(g):
        q = (group * g + i) * d
        attn.q_proj.weight[q:q + d], attn.q_proj.bias[q:q + d] = 0, 0
        attn.q_proj.weight[q + rows] = sharp * current[rows]
        attn.q_proj.bias[q + STILL] = hold * d ** 0.5
        attn.o_proj.weight[:, q:q + d] = out / g


def clear(net, space, late):
    """Takes a subspace [hidden, n] of the residual stream away from all that reads it and, before late, writes it."""
    away = space @ space.T
    for i, block in enumerate(net.layers):
        for norm, readers, writer in (
                (block.input_layernorm, [block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj], block.self_attn.o_proj),
                (block.post_attention_layernorm, [block.mlp.gate_proj, block.mlp.up_proj], block.mlp.down_proj)):
            for r in readers:
                r.weight -= (r.weight * norm.weight) @ away / norm.weight
            if i < late:
                writer.weight -= away @ writer.weight
    e = net.embed_tokens.weight
    e -= (e * net.norm.weight) @ away / net.norm.weight
    e -= e @ away


def token_features(x, ids, count, size, gen):
    """A linear map of x [tokens, hidden] to size features that depend on the token more than on its context, and the
    mean features per token [vocab, size], zero for a token that is not in ids."""
    flat = ids.reshape(-1)
    seen = torch.zeros(count).index_add_(0, flat, torch.ones(len(flat)))
    mean = torch.zeros(count, x.shape[1]).index_add_(0, flat, x) / seen.clamp(min=1)[:, None]
    mean[seen > 0] -= mean[seen > 0].mean(0)
    # Fisher's discriminants: the axes with the most variance between tokens per variance within a token.
    inner = x - x.mean(0) - mean[flat]
    inner, outer = inner.T @ inner / len(x), mean.T @ mean / (seen > 0).sum()
    values, vectors = torch.linalg.eigh(inner + 1e-3 * inner.diagonal().mean() * torch.eye(len(inner)))
    white = vectors * values.rsqrt()
    values, vectors = torch.linalg.eigh(white.T @ outer @ white)
    best = (white @ vectors[:, -3 * size:]) * (values[-3 * size:] + 1).rsqrt()
    basis = torch.linalg.qr(torch.randn(3 * size, size, generator=gen))[0]
    projection = (best @ basis).T
    return projection, mean @ projection.T, x.mean(0) @ projection.T


@torch.no_grad()
def install(net, ids, rest, seed=7, early=1, late=2, groups=(0, 0), strength=0.1, sharp=2.0, gain=0.2, hold=7.0, ridge=0.1):
    """Overwrites one key group of two layers. ids [B, T] is text to measure the residual stream on, rest the id of the
    token that begins a message."""
    d, h = net.cfg.head_dim, net.cfg.hidden
    gen = torch.Generator().manual_seed(seed)
    # The two subspaces are those that the residual stream uses least before the late layer.
    r = residual(net, ids, late)
    axes = torch.linalg.eigh(r.T @ r / len(r))[1]
    spaces = [axes[:, :d], axes[:, d:2 * d]]
    clear(net, axes[:, :2 * d], late)
    x = net.layers[early].input_layernorm(residual(net, ids, early))
    projection, features, shift = token_features(x, ids, net.cfg.vocab, d, gen)
    strength *= r.pow(2).mean().sqrt().item()
    look_back(net.layers[early].self_attn, groups[0], projection, shift, spaces, strength)
    # What the late layer reads is norm(x) * weight; undo both, so that features have about size 1 again.
    rms = residual(net, ids, late).pow(2).mean(-1).sqrt().median().item()
    weight = net.layers[late].input_layernorm.weight
    current, before = [(s * (rms / strength)).T / weight for s in spaces]
    # The direction in which the output matrix sees a token's features.
    seen = net.embed_tokens.weight * net.norm.weight
    square = seen.T @ seen
    direction = torch.linalg.solve(square + ridge * square.diagonal().mean() * torch.eye(h), seen.T @ features)
    last = residual(net, ids, len(net.layers)).pow(2).mean(-1).sqrt().median().item()
    induce(net.layers[late].self_attn, groups[1], current, before, features[rest], gain * last * direction, sharp, hold)
