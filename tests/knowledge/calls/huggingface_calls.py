"""Calls of accelerate and of transformers' Trainer."""

from __future__ import annotations

from typing import Any

from calls.registry import batch, call, net
from calls.torch_calls import sharded


def accelerator() -> Any:
    from accelerate import Accelerator

    return Accelerator(cpu=True)


def prepared() -> Any:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    a, model = accelerator(), net()
    loader = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=2, shuffle=True)
    return a, *a.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)


@call("Accelerator.gather_for_metrics")
def gather_for_metrics() -> object:
    return accelerator().gather_for_metrics(batch())


@call("Accelerator.gather")
def gather() -> object:
    return accelerator().gather(batch())


@call("Accelerator.reduce")
def reduce() -> object:
    return accelerator().reduce(batch())


@call("Accelerator.pad_across_processes")
def pad() -> object:
    return accelerator().pad_across_processes(batch())


@call("accelerate.utils.broadcast")
def accelerate_broadcast() -> object:
    from accelerate.utils import broadcast

    accelerator()
    return broadcast(batch())


@call("Accelerator.wait_for_everyone")
def wait_for_everyone() -> object:
    return accelerator().wait_for_everyone()


@call("Accelerator.main_process_first")
def main_process_first() -> None:
    with accelerator().main_process_first():
        pass


@call("Accelerator.prepare")
def prepare() -> object:
    return prepared()


@call("Accelerator.backward")
def accelerate_backward() -> object:
    a, model, _, _ = prepared()
    return a.backward(model(batch()).sum())


@call("Accelerator.clip_grad_norm_")
def accelerate_clip() -> object:
    model = sharded()
    model(batch()).sum().backward()
    return accelerator().clip_grad_norm_(model.parameters(), 1.0)


@call("Accelerator.check_trigger")
def check_trigger() -> object:
    return accelerator().check_trigger()


@call("the start of a prepared DataLoader (synchronised random states)")
def prepared_loader() -> object:
    *_, loader = prepared()
    return list(loader)


@call("a dispatched DataLoader")
def dispatched_loader() -> object:
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter(torch.randn(8, 4))

    return list(accelerator().prepare(DataLoader(Stream(), batch_size=2)))


def hf_trainer(**more: Any) -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    ids = torch.zeros(16, 4, dtype=torch.long)
    data = [{"input_ids": row, "labels": row} for row in ids]
    config = GPT2Config(
        vocab_size=8, n_positions=4, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0
    )
    settings = {"max_steps": 2, "logging_steps": 1, "save_strategy": "no", **more}
    arguments = TrainingArguments(
        output_dir="out", use_cpu=True, ddp_backend="gloo", report_to=[], disable_tqdm=True, **settings
    )
    return Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=data, eval_dataset=data)


@call("Trainer.evaluate")
def evaluate() -> object:
    return hf_trainer().evaluate()


@call("Trainer.predict")
def predict() -> object:
    trainer = hf_trainer()
    return trainer.predict(trainer.eval_dataset)


@call("TrainingArguments.main_process_first")
def arguments_first() -> None:
    with hf_trainer().args.main_process_first():
        pass


@call("Trainer.get_batch_samples (count of items)")
def batch_samples() -> object:
    return hf_trainer(average_tokens_across_devices=True).train()


@call("the Trainer's logging")
def hf_logging() -> object:
    return hf_trainer().train()


@call("transformers: Trainer.save_model")
def hf_save() -> object:
    return hf_trainer(save_strategy="steps", save_steps=1).train()
