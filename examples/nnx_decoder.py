"""A transformer decoder in Flax NNX: layers in a loop or a scan, with and without remat; it writes in a while loop."""

import functools

import jax.numpy as jnp
import optax
from flax import nnx

import jitclient

jitclient.install()  # `nnx.jit` is jitclient's from here on

TOKENS, LENGTH, WIDTH, HEADS, LAYERS, END = 12, 16, 32, 4, 3, 11


class Block(nnx.Module):
    """Attention to what came before, and a small network for each place."""

    def __init__(self, rngs):
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.wider = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.back = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        mask = nnx.make_causal_mask(x[..., 0])
        x = x + self.attention(self.norms[0](x), mask=mask)
        return x + self.back(nnx.gelu(self.wider(self.norms[1](x))))


class Decoder(nnx.Module):
    """Predict the next token at each place of a text."""

    def __init__(self, scanned, remat, rngs):
        self.scanned, self.remat = scanned, remat
        self.tokens = nnx.Embed(TOKENS, WIDTH, rngs=rngs)
        self.places = nnx.Embed(LENGTH, WIDTH, rngs=rngs)
        if scanned:
            make = nnx.split_rngs(splits=LAYERS)(nnx.vmap(Block, in_axes=0, out_axes=0))
            self.blocks = make(rngs)
        else:
            self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])

    def __call__(self, text):
        def one(x, block):
            return block(x)

        one = nnx.remat(one) if self.remat else one
        x = self.tokens(text) + self.places(jnp.arange(LENGTH))
        if self.scanned:
            x = nnx.scan(one, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.blocks)
        else:
            x = functools.reduce(one, self.blocks, x)
        return self.tokens.attend(x)


@nnx.jit
def learn(decoder, optimizer, texts):
    def loss_of(decoder):
        scores = decoder(texts)[:, :-1]
        return optax.softmax_cross_entropy_with_integer_labels(scores, texts[:, 1:]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(decoder)
    optimizer.update(decoder, gradients)
    return loss


@nnx.jit
def write(decoder, text, at):
    """Complete a text whose tokens up to `at` are given, until it ends."""

    def goes_on(state):
        _, text, at = state
        return (at < LENGTH - 1) & (text[0, at] != END)

    def next_token(state):
        decoder, text, at = state
        return decoder, text.at[0, at + 1].set(decoder(text)[0, at].argmax()), at + 1

    return nnx.while_loop(goes_on, next_token, (decoder, text, at))[1:]


# Each text counts upwards from where it begins, and ends with END.
counting = jnp.minimum(jnp.arange(8)[:, None] + jnp.arange(LENGTH), END)
for scanned in (False, True):
    for remat in (False, True):
        decoder = Decoder(scanned, remat, nnx.Rngs(0))
        optimizer = nnx.Optimizer(decoder, optax.adam(3e-3), wrt=nnx.Param)
        for _ in range(120):
            loss = learn(decoder, optimizer, counting)
        text, at = write(decoder, jnp.zeros((1, LENGTH), int).at[0, 0].set(5), 0)
        how = f"{'scan' if scanned else 'loop'}{' with remat' if remat else ''}"
        print(f"{how}: loss {loss:.3f}; after 5 comes {text[0, 1 : int(at) + 1].tolist()}")
