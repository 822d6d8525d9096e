"""A model of PyTorch in the middle of a program: loss and gradients by callbacks. Skipped where there is no torch."""

from typing import Any

import jax
import numpy as np
import pytest

import jitclient

torch = pytest.importorskip("torch", reason="NOT TESTED HERE: torch is not installed")


def test_a_loss_of_torch_with_its_gradient() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def evaluate(x: Any) -> tuple[Any, Any]:
        given = torch.tensor(np.asarray(x), requires_grad=True)
        found = model(given).square().mean()
        (gradient,) = torch.autograd.grad(found, given)
        return found.detach().numpy(), gradient.numpy()

    def called(x: Any) -> Any:
        return jax.pure_callback(evaluate, (jax.ShapeDtypeStruct((), x.dtype), x), x)

    @jax.custom_vjp
    def loss(x: Any) -> Any:
        return called(x)[0]

    loss.defvjp(called, lambda gradient, g: (g * gradient,))
    x = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
    step = lambda x: x - 0.1 * jax.grad(loss)(x)
    remote = jitclient.jit(step)
    expected = jax.jit(step)(x)
    np.testing.assert_allclose(np.asarray(remote(remote(x))), np.asarray(jax.jit(step)(expected)), rtol=1e-6)
