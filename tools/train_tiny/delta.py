"""The gated delta rule, row by row and in chunks.

Per head, with a state S [Dk, Dv]: S *= exp(g); S += k (beta (v - S^T k))^T; o = S^T q / sqrt(Dk).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64


def delta_rows(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Row by row: for single rows behind a state, and the oracle of the chunks.

    Args:
        q, k: [B, H, T, Dk].
        v: [B, H, T, Dv].
        g, beta: [B, H, T].
        state: [B, H, Dk, Dv].

    Returns:
        [B, H, T, Dv], and the state after the last row.
    """
    q, rows = q * q.shape[-1] ** -0.5, []
    for t in range(v.shape[2]):
        key = k[:, :, t, :, None]
        state = state * g[:, :, t, None, None].exp()
        change = beta[:, :, t, None] * (v[:, :, t] - (state * key).sum(-2))
        state = state + key * change[..., None, :]
        rows.append((state * q[:, :, t, :, None]).sum(-2))
    return torch.stack(rows, 2), state


def delta_chunks(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The same by matrix products, ``CHUNK`` rows at a time (WY form).

    Within a chunk, with G the running sum of g and A[i, j] = beta_i k_i.k_j exp(G_i - G_j), j < i:
    the rows' changes are (I + A)^-1 (beta v - beta exp(G) k S).

    Source: Yang, Kautz, Hatamizadeh, Gated Delta Networks (2024).
    """
    batch, heads, num_rows, width = v.shape
    pad = -num_rows % CHUNK
    q, k, v = (F.pad(x, (0, 0, 0, pad)) for x in (q * q.shape[-1] ** -0.5, k, v))
    g, beta = (F.pad(x, (0, pad)) for x in (g, beta))
    q, k, v, g, beta = (x.unflatten(2, (-1, CHUNK)).flatten(0, 1) for x in (q, k, v, g, beta))
    total, beta = g.cumsum(-1), beta[..., None]  # [B H, chunks, rows]
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(later, -torch.inf).exp()
    a = ((k * beta) @ k.transpose(-1, -2) * decay).tril(-1)
    right = torch.cat([v * beta, k * beta * total.exp()[..., None]], dim=-1)
    solved = torch.linalg.solve_triangular(a, right, upper=False, unitriangular=True)
    own, from_state = solved[..., :width], solved[..., width:]
    scores = (q @ k.transpose(-1, -2)) * decay
    q = q * total.exp()[..., None]
    last = total[..., -1:]
    k = (k * (last - total).exp()[..., None]).transpose(-1, -2)
    state, rows = state.flatten(0, 1), []
    for i in range(g.shape[1]):
        change = own[:, i] - from_state[:, i] @ state
        rows.append(q[:, i] @ state + scores[:, i] @ change)
        state = state * last[:, i, :, None].exp() + k[:, i] @ change
    out = torch.cat(rows, 1).unflatten(0, (batch, heads))
    return out[:, :, :num_rows], state.unflatten(0, (batch, heads))
