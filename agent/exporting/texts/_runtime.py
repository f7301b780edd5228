"""Operators of PyTorch that run a judged Triton kernel, and the reference everywhere else.

An operator takes the tensors of a call, the weights of the module, and the arguments of the
module's constructor as text. It runs the kernel inside its contract (dtypes,
shapes, strides, device: kernel.py checks them at every call) and the reference outside of it.
"""

import ast
import contextlib
import importlib
import os
import threading

import torch
from torch.utils._pytree import tree_leaves

NOTHING = torch.empty(0, device="meta")
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") != "0"


class KernelOperator:
    """An operator of torch.library with fake implementation, autograd and autocast rule."""

    def __init__(
        self,
        package,
        name,
        *,
        inputs,
        outputs,
        arguments,
        kernels,
        training,
        forms,
        writes=(),
        half=None,
        gradients=(),
        gradients_of=(),
    ):
        """Registers the operator.

        inputs: schema of the inputs, "Tensor x, float scale". outputs: number of output tensors.
        arguments: builds the arguments of `forward` from the inputs. kernels: module of the kernel
        by name of the GPU; "" is the default. training: mode in which all was judged. forms: for each
        form of calls that was judged, dtype and shape of each tensor, with names for the sizes that
        vary, and a function that says whether these sizes fit.
        writes: "inputs" or "weights" that forward changes. half: the dtype of all floating tensors
        if it is float16 or bfloat16. gradients: positions, among the tensors of the inputs and the
        weights, of the gradients that the kernel of that name computes, from those of the outputs
        at `gradients_of`.
        """
        self._gradients, self._gradients_of = gradients, gradients_of
        self.package, self.name, self.half, self.training = package, name, half, training
        self.refusal = ""
        """Why the last call ran the reference; empty if it ran the kernel."""
        self.gradients_refusal = ""
        """Why the last gradients came from the reference; empty if they came from their kernel."""
        self._arguments, self._kernels, self._forms = arguments, kernels, forms
        self._constructors, self._built, self._lock = {}, {}, threading.RLock()
        declared = inputs.split(", ") if inputs else []
        self._is_tensor = [argument.startswith("Tensor") for argument in declared]
        rest = ["Tensor[] weights", "str constructor"]
        shown, changed = [*declared, *rest], []
        for index, argument in enumerate(shown):
            written = "weights" if argument == rest[0] else "inputs"
            if argument.startswith("Tensor") and written in writes:
                # torch's notation: `Tensor(a!) x` is an argument that the operator writes to.
                shown[index] = argument.replace("Tensor", f"Tensor(a{index}!)", 1)
                changed.append(argument.split()[1])
        returned = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
        self._op = torch.library.custom_op(
            name, self._run, mutates_args=changed, schema=f"({', '.join(shown)}) -> {returned}"
        )
        self._op.register_fake(self._fake)
        self.differentiable = not writes
        self.has_gradient_kernel = bool(gradients) and self.differentiable
        if not writes:
            shown = ["Tensor[] gradients", *declared, *rest, "int[] wanted"]
            self._backward_op = torch.library.custom_op(
                f"{name}_backward",
                self._run_backward,
                mutates_args=(),
                schema=f"({', '.join(shown)}) -> Tensor[]",
            )
            self._backward_op.register_fake(self._fake_backward)
            self._op.register_autograd(self._backward, setup_context=self._keep)
        if half is not None:
            for device in ("cuda", "cpu"):
                self._op.register_autocast(device, half)

    # ------------------------------------------------------------------ called by the module
    def remember(self, args, kwargs):
        """Returns the text that names the arguments of a module's constructor."""
        text = repr((args, kwargs))
        try:
            ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError):
            text = f"module {len(self._constructors)}"
        self._constructors[text] = (args, kwargs)
        return text

    def accepts(self, module, tensors):
        """Returns whether a call goes to the operator: tensors on a GPU of judged dtypes and
        shapes, no gradients wanted.
        """
        if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            return False
        if not self._fits(tensors):
            return False
        tensors = [*tensors, *module.parameters()]
        if not tensors:
            return False
        trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        if trained and not self.has_gradient_kernel:
            return False
        device = tensors[0].device.type
        return device == "cuda" or (INTERPRETED and device == "cpu")

    def _fits(self, tensors):
        autocast = len(tensors) > 0 and torch.is_autocast_enabled(tensors[0].device.type)
        if autocast and torch.get_autocast_dtype(tensors[0].device.type) != self.half:
            return False
        return any(self._has_form(tensors, form, autocast) for form in self._forms)

    def _has_form(self, tensors, form, autocast):
        shapes, holds = form
        sizes: dict[str, int] = {}
        for tensor, (dtype, shape) in zip(tensors, shapes, strict=True):
            cast = autocast and tensor.is_floating_point()
            if (tensor.dtype != dtype and not cast) or tensor.dim() != len(shape):
                return False
            for extent, size in zip(tensor.shape, shape, strict=True):
                if extent != (sizes.setdefault(size, extent) if isinstance(size, str) else size):
                    return False
        return holds(sizes)

    def weights(self, module):
        """Returns the parameters and buffers of a module in the order of the operator."""
        return [*module.parameters(), *module.buffers()]

    def __call__(self, *values):
        """Calls the operator through PyTorch's dispatcher."""
        return self._op(*values)

    # ------------------------------------------------------------------ implementations
    def _run(self, *values):
        *inputs, weights, constructor = values
        device = _device(inputs, weights)
        with torch.no_grad(), torch.autocast(device.type, enabled=False), self._lock:
            outputs = self._run_kernel(inputs, weights, constructor, device)
            if outputs is None:
                module = self._module("", constructor, device)
                outputs = module.call(weights, self._arguments(*inputs))
        outputs = _owned(outputs, [*filter(torch.is_tensor, inputs), *weights])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _run_kernel(self, inputs, weights, constructor, device):
        """Returns the outputs of the kernel; None outside of its contract."""
        self.refusal = ""
        if device.type != "cuda" and not INTERPRETED:
            self.refusal = f"the tensors are on {device}"
            return None
        card = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        file = self._kernels.get(card, self._kernels[""])
        arguments = self._arguments(*inputs)
        outputs, self.refusal = self._call_kernel(file, weights, arguments, constructor, device)
        return outputs

    def _call_kernel(self, file, weights, arguments, constructor, device):
        """Returns the tensors of a kernel and ""; outside of its contract None and the reason."""
        kernel = importlib.import_module(f".{file}", self.package).ModelNew
        try:
            return self._module(file, constructor, device).call(weights, arguments), ""
        except kernel.OutsideContract as error:
            return None, str(error)

    def _fake(self, *values):
        *inputs, weights, constructor = values
        device = _device(inputs, weights)
        with torch.no_grad():
            # Built anew: constants of the module must be fake tensors of this very mode.
            module = self._build("", constructor, device)
            outputs = module.call(weights, self._arguments(*inputs))
        outputs = [torch.empty(o.shape, dtype=o.dtype, device=o.device) for o in outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    # ------------------------------------------------------------------ gradients
    def _keep(self, ctx, inputs, output):
        *values, weights, constructor = inputs
        tensors = [v for v, is_tensor in zip(values, self._is_tensor, strict=True) if is_tensor]
        ctx.save_for_backward(*tensors, *weights)
        ctx.plain = [None if t else v for v, t in zip(values, self._is_tensor, strict=True)]
        ctx.constructor = constructor

    def _backward(self, ctx, *gradients):
        """Computes gradients by their kernel, or through the reference, which runs once more."""
        count = sum(self._is_tensor)
        saved = ctx.saved_tensors
        tensors = iter(saved[:count])
        values = [
            next(tensors) if t else v for v, t in zip(ctx.plain, self._is_tensor, strict=True)
        ]
        weights = list(saved[count:])
        *needs, weights_need, _ = ctx.needs_input_grad
        of_tensors = [need for need, t in zip(needs, self._is_tensor, strict=True) if t]
        of_weights = weights_need if isinstance(weights_need, (list, tuple)) else []
        wanted = [i for i, need in enumerate([*of_tensors, *of_weights]) if need]
        given = [torch.zeros(()) if g is None else g for g in gradients]
        computed = self._backward_op(given, *values, weights, ctx.constructor, wanted)
        by_position = dict(zip(wanted, computed, strict=True))
        positions = iter(range(count))
        of_values = [by_position.get(next(positions)) if t else None for t in self._is_tensor]
        return *of_values, [by_position.get(count + i) for i in range(len(weights))], None

    def _run_backward(self, gradients, *values):
        *inputs, weights, constructor, wanted = values
        device = _device(inputs, weights)
        tensors = [*filter(torch.is_tensor, inputs), *weights]
        computed = self._run_gradients(gradients, inputs, weights, constructor, device)
        if computed is not None:
            by_position = dict(zip(self._gradients, computed, strict=True))
            chosen = [by_position.get(i) for i in wanted]
            complete = [
                torch.zeros_like(tensors[i]) if gradient is None else gradient
                for i, gradient in zip(wanted, chosen, strict=True)
            ]
            return _owned(complete, [*gradients, *tensors])
        leaves = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(tensors)]
        fresh = iter(leaves)
        inputs = [next(fresh) if torch.is_tensor(value) else value for value in inputs]
        with _recording_gradients(), self._lock:
            module = self._module("", constructor, device)
            outputs = module.call(list(fresh), self._arguments(*inputs))
        pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
        asked = [leaves[i] for i in wanted]
        computed = torch.autograd.grad(
            [o for o, _ in pairs], asked, [g for _, g in pairs], allow_unused=True
        )
        complete = []
        for leaf, gradient in zip(asked, computed, strict=True):
            complete.append(torch.zeros_like(leaf) if gradient is None else gradient)
        return _owned(complete, [*gradients, *tensors])

    def _run_gradients(self, gradients, inputs, weights, constructor, device):
        """Returns the gradients by their kernel; None without one, and outside of its contract."""
        if not self._gradients or (device.type != "cuda" and not INTERPRETED):
            self.gradients_refusal = "there is no kernel for them on this device"
            return None
        arguments = [*self._arguments(*inputs), *(gradients[i] for i in self._gradients_of)]
        with torch.no_grad(), torch.autocast(device.type, enabled=False), self._lock:
            computed, self.gradients_refusal = self._call_kernel(
                "gradients", weights, arguments, constructor, device
            )
        return computed

    def _fake_backward(self, gradients, *values):
        *inputs, weights, _, wanted = values
        tensors = [*filter(torch.is_tensor, inputs), *weights]
        return [
            torch.empty(tensors[i].shape, dtype=tensors[i].dtype, device=tensors[i].device)
            for i in wanted
        ]

    # ------------------------------------------------------------------ modules without weights
    def _module(self, file, constructor, device):
        """Returns the module of the kernel in `file`, or of the reference ("")."""
        key = file, constructor, device
        if key not in self._built:
            gpus = [device] if device.type == "cuda" else []
            with torch.inference_mode(False), torch.random.fork_rng(devices=gpus):
                self._built[key] = self._build(file, constructor, device)
        return self._built[key]

    def _build(self, file, constructor, device):
        args, kwargs = self._constructors.get(constructor) or ast.literal_eval(constructor)
        reference = importlib.import_module(".reference", self.package).Model
        with device:
            module = reference(*args, **kwargs)
            names = [n for n, _ in (*module.named_parameters(), *module.named_buffers())]
            if file:
                kernel = importlib.import_module(f".{file}", self.package).ModelNew
                names = _names_in_kernel(module, built := kernel(*args, **kwargs), kernel)
                module = built
        return _Borrower(module.train(self.training), names)


class _Borrower:
    """A module that computes with the weights of each call, and holds none itself."""

    def __init__(self, module, names):
        """names: the module's name for each weight of the operator; None for one that it lacks."""
        self._module = module
        tensors = dict(_all_tensors(module))
        self._slots = []
        for name in names:
            same = [n for n, tensor in tensors.items() if name and tensor is tensors[name]]
            self._slots.append([_slot(module, n) for n in same])
        self._give_back()

    def call(self, weights, arguments):
        """Returns the tensors of the outputs."""
        for slots, weight in zip(self._slots, weights, strict=True):
            for table, key in slots:
                table[key] = weight
        try:
            return [leaf for leaf in tree_leaves(self._module(*arguments)) if torch.is_tensor(leaf)]
        finally:
            self._give_back()

    def _give_back(self):
        for slots in self._slots:
            for table, key in slots:
                table[key] = NOTHING


def _all_tensors(module):
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _slot(module, name):
    owner, _, key = name.rpartition(".")
    owner = module.get_submodule(owner)
    return (owner._parameters if key in owner._parameters else owner._buffers), key


def _names_in_kernel(reference, kernel, kind):
    """Returns the kernel's name for each weight of the reference: by name, else by order."""
    theirs = dict(_all_tensors(kernel))
    parameters, buffers = dict(reference.named_parameters()), dict(reference.named_buffers())
    shapes = [tuple(weight.shape) for weight in parameters.values()]
    if parameters.keys() <= theirs.keys():
        ordered = list(parameters)
    elif shapes == [tuple(weight.shape) for weight in kernel.parameters()]:
        ordered = [name for name, _ in kernel.named_parameters()]
    else:
        raise kind.OutsideContract("the weights of the kernel are not those of the reference")
    return ordered + [name if name in theirs else None for name in buffers]


@contextlib.contextmanager
def _recording_gradients():
    """Records gradients inside of an operator, where PyTorch's dispatcher skips autograd."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradFunctionality)
    for key in ("ADInplaceOrView", "AutogradOther", "AutogradNestedTensor"):
        keys = keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    included = torch._C._dispatch_tls_local_include_set()
    excluded = torch._C._dispatch_tls_local_exclude_set() - keys
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch.enable_grad():
        yield


def _device(inputs, weights):
    tensors = [*filter(torch.is_tensor, inputs), *weights]
    return tensors[0].device if tensors else torch.get_default_device()


def _owned(outputs, inputs):
    """Returns contiguous outputs that share no memory with inputs or with each other."""
    taken = {tensor.untyped_storage()._cdata for tensor in inputs}
    owned = []
    for output in outputs:
        output = output.detach().contiguous()
        if output.untyped_storage()._cdata in taken:
            output = output.clone()
        taken.add(output.untyped_storage()._cdata)
        owned.append(output)
    return owned
