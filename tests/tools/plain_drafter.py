"""Block drafters row by row and head by head, in float64: what the file format says they are."""

import numpy as np


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def turned(x, position, base):
    """A head [Dh] by neox rotary."""
    half = len(x) // 2
    angles = position * base ** (-np.arange(half) / half)
    a, b = x[:half], x[half:]
    return np.concatenate(
        [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)]
    )


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


class PlainDrafter:
    """One block at a time.

    Args:
        weights: the file's tensors, by name.
        keys: the file's keys under ``dflash.``.
        embedding: [V, D] the target's, also its LM head.
        mask: the mask's id.
    """

    def __init__(self, weights, keys, embedding, mask):
        self.w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
        self.keys, self.embedding, self.mask = keys, embedding.astype(np.float64), mask
        self.eps = keys["attention.layer_norm_rms_epsilon"]
        self.window = keys.get("attention.sliding_window")

    def head(self, layer, which, row, position):
        """The heads of a row, normed and turned: [heads, Dh]."""
        dim, base = self.keys["attention.key_length"], self.keys["rope.freq_base"]
        heads = (self.w[f"blk.{layer}.attn_{which}.weight"] @ row).reshape(-1, dim)
        norm = self.w[f"blk.{layer}.attn_{which}_norm.weight"]
        return np.stack([turned(one, position, base) for one in rms(heads, norm, self.eps)])

    def values(self, layer, row):
        dim = self.keys["attention.value_length"]
        return (self.w[f"blk.{layer}.attn_v.weight"] @ row).reshape(-1, dim)

    def conv(self, layer, part, side, source, rows):
        """Filter rows by what ``source`` makes of each of them, where the file has convolutions."""
        if f"blk.{layer}.{part}_conv_base" not in self.w:
            return rows
        base = self.w[f"blk.{layer}.{part}_conv_base"]
        taps, group = self.keys["conv_kernel_size"], self.keys["conv_group_size"]
        width, found = rows.shape[1], np.zeros_like(rows)
        for t in range(len(rows)):
            dynamic = self.w[f"blk.{layer}.{part}_conv_proj.weight"] @ source[t]
            dynamic = dynamic.reshape(2, taps, width // group)
            for tap in range(min(taps, t + 1)):
                for c in range(width):
                    factor = base[side, tap, c] + dynamic[side, tap, c // group]
                    found[t, c] += factor * rows[t - tap, c]
        return found

    def attention(self, layer, h, start, injected):
        """[L, D] behind ``injected`` rows, which stand at 0 .. start - 1."""
        seen = [self.head(layer, "k", g, p) for p, g in enumerate(injected)]
        values = [self.values(layer, g) for g in injected]
        seen += [self.head(layer, "k", row, start + i) for i, row in enumerate(h)]
        values = np.stack([*values, *(self.values(layer, row) for row in h)])
        keys, found = np.stack(seen), []
        for i, row in enumerate(h):
            queries = self.head(layer, "q", row, start + i)
            repeats = len(queries) // keys.shape[1]
            hidden = np.zeros(len(keys), bool)
            if self.window is not None:
                hidden = start + i - np.arange(len(keys)) >= self.window
            mixed = []
            for number, q in enumerate(queries):
                scores = keys[:, number // repeats] @ q / np.sqrt(len(q))
                shares = softmax(np.where(hidden, -np.inf, scores))
                mixed.append(shares @ values[:, number // repeats])
            found.append(self.w[f"blk.{layer}.attn_output.weight"] @ np.concatenate(mixed))
        return np.stack(found)

    def feed(self, layer, h):
        gate, up, down = (
            self.w[f"blk.{layer}.ffn_{name}.weight"] for name in ("gate", "up", "down")
        )
        gated = h @ gate.T
        return (gated / (1 + np.exp(-gated)) * (h @ up.T)) @ down.T

    def block(self, last, taps, num_rows):
        """Hidden rows [num_rows, D] of a block behind ``taps``, one row per position before it."""
        g = rms(taps @ self.w["fc.weight"].T, self.w["enc.output_norm.weight"], self.eps)
        x = self.embedding[[last] + [self.mask] * (num_rows - 1)]
        for i in range(self.keys["block_count"]):
            h = rms(x, self.w[f"blk.{i}.attn_norm.weight"], self.eps)
            o = self.attention(i, self.conv(i, "attn", 0, h, h), len(taps), g)
            x = x + self.conv(i, "attn", 1, h, o)
            h = rms(x, self.w[f"blk.{i}.ffn_norm.weight"], self.eps)
            x = x + self.conv(i, "ffn", 1, h, self.feed(i, self.conv(i, "ffn", 0, h, h)))
        return rms(x, self.w["output_norm.weight"], self.eps)

    def dflash(self, hidden, last):
        """The likeliest ids of all rows but the first."""
        return (hidden[1:] @ self.embedding.T).argmax(-1).tolist()

    def dflash2(self, hidden, last):
        """The lattice of all pairs of candidates, and the greedy walk through it."""
        logits, gates = (
            hidden[1:] @ self.embedding.T,
            hidden[1:] @ self.w["selector_hidden.weight"].T,
        )
        candidates = np.argsort(-logits, kind="stable")[:, : self.keys["selector_top_k"]]
        before, found, pick = np.array([last]), [], 0
        for row, ids, gate in zip(logits, candidates, gates, strict=True):
            pairs = self.w["selector_predecessor.weight"][before] * gate
            table = row[ids] + pairs @ self.w["selector_successor.weight"][ids].T
            pick = int(table[pick].argmax())
            found.append(int(ids[pick]))
            before = ids
        return found

    def moved(self, row, last):
        """DSpark's logits of a row behind an id."""
        markov = self.w["markov_w2.weight"] @ self.w["markov_w1.weight"][last]
        return self.embedding @ row + markov

    def confidence(self, row, last):
        """DSpark's, of what a row drafts behind an id."""
        read = np.concatenate([row, self.w["markov_w1.weight"][last]])
        score = self.w["conf_proj.weight"][0] @ read + self.w["conf_proj.bias"][0]
        return 1 / (1 + np.exp(-score))

    def dspark(self, hidden, last):
        """Every row's likeliest id behind the one before."""
        found = []
        for row in hidden:
            last = int(self.moved(row, last).argmax())
            found.append(last)
        return found
