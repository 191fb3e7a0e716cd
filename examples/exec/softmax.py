#!/usr/bin/env python3
"""Softmax regression in NumPy, on Falcon's own data:

    PYTHONPATH=share falcon-work --exec examples/exec/softmax.py ADDR
"""
import numpy as np

import falcon_train


def gradient(task):
    (weight,) = (t for n, t in task.params.items() if n.endswith(".weight"))
    (bias,) = (t for n, t in task.params.items() if n.endswith(".bias"))
    x, y = task.x.reshape(task.count, -1), task.y
    z = x @ weight.T + bias
    z -= z.max(1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    loss = -np.log(p[np.arange(task.count), y]).sum()
    right = (z.argmax(1) == y).sum()
    if task.train:
        p[np.arange(task.count), y] -= 1
        for name, grad in task.grads.items():
            grad[:] = p.T @ x if name.endswith(".weight") else p.sum(0)
    return loss, right


falcon_train.serve(gradient, samples=True, about="NumPy " + np.__version__)
