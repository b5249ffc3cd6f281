"""A transformer in plain NumPy, one row, one head and one token at a time, over real tokens only."""

import numpy as np
from scipy.special import log_softmax


def normalise(network, weights, owner, x, layer=None):
    """LayerNorm or RMSNorm with the gain and bias of `owner`, x of shape (token, embed)."""
    pick = (lambda name: weights[name]) if layer is None else (lambda name: weights[name][layer])
    rows = []
    for vector in x:
        if network.norm == "layer":
            vector = (vector - vector.mean()) / np.sqrt(vector.var() + 1e-5)
        else:
            vector = vector / np.sqrt((vector**2).mean() + 1e-5)
        if network.norm_gain:
            vector = vector * pick(f"{owner}.norm.gain")
        if network.norm_bias:
            vector = vector + pick(f"{owner}.norm.bias")
        rows.append(vector)
    return np.array(rows).reshape(x.shape)


def gelu(x):
    """The tanh form."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def position(t, width):
    """Vaswani et al. (2017), equation in section 3.5."""
    out = np.zeros(width)
    for dimension in range(width):
        angle = t / 10000 ** (2 * (dimension // 2) / width)
        out[dimension] = np.sin(angle) if dimension % 2 == 0 else np.cos(angle)
    return out


def attention(network, weights, x, layer):
    """Multi-head attention, x of shape (token, embed)."""
    length, out = len(x), np.zeros_like(x)
    for head in range(network.num_heads):
        query = x @ weights["attention.query"][layer][:, head]
        if network.bias:
            query = query + weights["attention.query.bias"][layer][head]
        key, value = (
            x @ weights["attention.key"][layer][:, head],
            x @ weights["attention.value"][layer][:, head],
        )
        for t in range(length):
            seen = t + 1 if network.causal else length
            scores = np.array([query[t] @ key[s] for s in range(seen)]) / np.sqrt(key.shape[1])
            probabilities = np.exp(log_softmax(scores))
            out[t] += (probabilities @ value[:seen]) @ weights["attention.output"][layer][head]
    return out + weights["attention.output.bias"][layer] if network.bias else out


def mlp(network, weights, x, layer):
    """The feed-forward block."""
    bias = (lambda name: weights[name][layer]) if network.bias else (lambda name: 0.0)
    inner = x @ weights["mlp.in"][layer] + bias("mlp.in.bias")
    if network.activation == "swiglu":
        gate = x @ weights["mlp.gate"][layer] + bias("mlp.gate.bias")
        inner = gate / (1 + np.exp(-gate)) * inner
    else:
        inner = gelu(inner)
    return inner @ weights["mlp.out"][layer] + bias("mlp.out.bias")


def hidden_states(network, weights, content):
    """Final hidden states (token, embed) of one sequence without padding."""
    if network.vocab_size is not None:
        x = np.array([weights["embedding.token"][i] for i in content])
    else:
        x = content @ weights["embedding.kernel"] + (weights["embedding.bias"] if network.bias else 0.0)
    x = x.reshape(len(content), network.width)
    for t in range(len(x)):
        if network.positions == "learned":
            x[t] = x[t] + weights["embedding.position"][t]
        elif network.positions == "sinusoidal":
            x[t] = x[t] + position(t, network.width)
    for layer in range(network.num_layers):
        x = x + attention(network, weights, normalise(network, weights, "attention", x, layer), layer)
        x = x + mlp(network, weights, normalise(network, weights, "mlp", x, layer), layer)
    return normalise(network, weights, "head", x)


def transformer(network, weights, content, mask=None):
    """Outputs of `ptx.models.Transformer`, with masked positions cut out of each sequence."""
    mask = np.ones(content.shape[:2], bool) if mask is None else mask
    kernel = weights["embedding.token"].T / np.sqrt(network.width) if network.tied else weights["head.kernel"]
    bias = weights["head.bias"] if network.bias else 0.0
    per_token = np.zeros((*content.shape[:2], network.num_outputs))
    pooled = np.zeros((len(content), network.num_outputs))
    for row, kept in enumerate(mask):
        states = hidden_states(network, weights, content[row][kept])
        per_token[row, kept] = states @ kernel + bias
        if network.pooling is None:
            continue
        reduce = {"mean": lambda s: s.mean(axis=0), "first": lambda s: s[0], "last": lambda s: s[-1]}
        summary = reduce[network.pooling](states) if len(states) else np.zeros(network.width)
        pooled[row] = summary @ kernel + bias
    return per_token if network.pooling is None else pooled


def draw_weights(network, seed=0, scale=0.5):
    """Random weights in float64, gains around 1."""
    rng = np.random.default_rng(seed)
    return {n: w.center + scale * rng.normal(size=w.shape) for n, w in network.weights.items()}
