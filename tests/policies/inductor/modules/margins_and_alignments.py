"""Losses over labels and over alignments, spectra of images, and images made smaller with antialiasing."""

import torch
import torch.nn.functional as F
from torch import nn

rows = 12
classes = 9
time = 14
length = 4


class Model(nn.Module):
    def forward(self, x, label, labels, log_probs, targets, image):
        margins = F.multi_margin_loss(x, label), F.multilabel_margin_loss(x, labels)
        times = torch.full((log_probs.shape[1],), log_probs.shape[0], device=x.device)
        lengths = torch.full((log_probs.shape[1],), targets.shape[1], device=x.device)
        aligned = F.ctc_loss(log_probs.log_softmax(-1), targets, times, lengths, zero_infinity=True)
        spectrum = torch.fft.fft2(image)
        small = F.interpolate(image, scale_factor=0.5, mode="bilinear", antialias=True)
        return *margins, aligned, torch.fft.ifft2(spectrum * 0.5).real, small


def get_inputs():
    x, label = torch.randn(rows, classes), torch.randint(0, classes, (rows,))
    labels = torch.randint(-1, classes, (rows, classes))
    log_probs, targets = torch.randn(time, 3, classes), torch.randint(1, classes, (3, length))
    return [x, label, labels, log_probs, targets, torch.randn(2, 3, 12, 10)]


def get_init_inputs():
    return []
