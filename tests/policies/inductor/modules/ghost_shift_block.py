import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.primary = nn.Conv2d(cin, cout // 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout // 2)
        self.cheap = nn.Conv2d(cout // 2, cout // 2, 3, padding=1, groups=cout // 2, bias=False)
        self.se1, self.se2 = nn.Conv2d(cout, cout // 4, 1), nn.Conv2d(cout // 4, cout, 1)

    def forward(self, x):
        g = x.shape[1] // 5
        parts = list(torch.split(x[:, : 4 * g], g, dim=1))
        parts = [
            torch.roll(p, s, d)
            for p, s, d in zip(parts, (1, -1, 1, -1), (2, 2, 3, 3), strict=False)
        ]
        x = torch.cat([*parts, x[:, 4 * g :]], 1)
        p = F.relu6(self.bn(self.primary(x)))
        y = torch.cat([p, F.hardswish(self.cheap(p))], 1)
        s = F.adaptive_avg_pool2d(y, 1)
        return y * F.hardsigmoid(self.se2(F.relu(self.se1(s))))


def get_inputs():
    return [torch.randn(3, 10, 9, 11)]


def get_init_inputs():
    return [10, 16]
