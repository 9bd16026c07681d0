"""What the encoder, the decoder and the region model are made of. C model dim."""

from torch import Tensor
from torch.nn import functional

from worker.kernels import layer_norm as norm
from worker.model.weights import MLP, LayerNorm, Linear

__all__ = ["layer_norm", "linear", "mlp"]


def linear(x_C: Tensor, weights: Linear) -> Tensor:
    """Return x W^T + b."""
    return functional.linear(x_C, weights.weight, weights.bias)


def layer_norm(x_C: Tensor, weights: LayerNorm) -> Tensor:
    """Normalise over the last dim."""
    return norm.layer_norm(x_C, weights.weight, weights.bias)


def mlp(x_C: Tensor, weights: MLP) -> Tensor:
    """Return Linear, tanh-GELU, Linear of x."""
    return linear(functional.gelu(linear(x_C, weights.fc1), approximate="tanh"), weights.fc2)
