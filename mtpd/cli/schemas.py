"""What every command prints with ``--json``, as views; ``schema`` prints their schemas.

A command that is not here has no ``--json``; a test compares the tables with the commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd import quality_views, report_views, views
from mtpd.api.json_schema import Shape
from mtpd.cli import json_views
from mtpd.cli.doctor.views import DoctorView
from mtpd.cli.top.snapshot import TopView
from mtpd.events import Envelope
from mtpd.explanation_views import ExplanationView
from mtpd.gpu.views import DeviceView
from mtpd.log_views import LogLineView, LogView

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MTPCTL", "mtpd_shapes"]

_OPERATION: Final = (Shape(view=views.OperationView),)
_OPERATIONS: Final = (Shape(view=views.OperationView, member="operations"),)

MTPCTL: Final[Mapping[str, tuple[Shape, ...]]] = {
    "status": (Shape(view=views.StatusView),),
    "gpu": (Shape(view=DeviceView, member="devices"),),
    "models": (Shape(view=views.ModelView, member="models"), Shape(view=views.ModelView)),
    "switch": _OPERATION,
    "load": _OPERATION,
    "unload": _OPERATION,
    "reload": _OPERATION,
    "tune": _OPERATION,
    "sweep": _OPERATION,
    "probe": _OPERATION,
    "ppl": (
        Shape(view=quality_views.PerplexityView, member="perplexities"),
        Shape(view=quality_views.PplComparisonView),
        *_OPERATION,
    ),
    "bench": (Shape(view=quality_views.BaselineView, member="baselines"), *_OPERATION),
    "recipe b2": (Shape(view=quality_views.RecipeView), *_OPERATION),
    "quarantine list": (Shape(view=views.QuarantineView, member="quarantine"),),
    "quarantine clear": (Shape(view=views.QuarantineView),),
    "decisions": (Shape(view=views.DecisionView, member="decisions"),),
    "explain": (Shape(view=ExplanationView),),
    "events": (Shape(view=Envelope),),
    "operations": _OPERATIONS,
    "operations list": _OPERATIONS,
    "operations show": _OPERATION,
    "operations cancel": _OPERATION,
    "report": (Shape(view=report_views.ReportView),),
    "measurements": (Shape(view=views.MeasurementView, member="measurements"),),
    "config": (Shape(view=views.ConfigValueView, member="config"),),
    "doctor": (Shape(view=DoctorView),),
    "logs": (Shape(view=LogView), Shape(view=LogLineView)),
    "top": (Shape(view=TopView),),
}
"""By the command's words; ``events``, ``top`` and ``logs --follow`` print one text per line."""


def mtpd_shapes() -> Mapping[str, tuple[Shape, ...]]:
    """The same for ``mtpd``, whose commands ask no daemon."""
    from mtpd.demo import Report  # noqa: PLC0415  # loads the daemon, which mtpctl does without

    return {
        "demo": (Shape(view=Report),),
        "check": (Shape(view=json_views.ConfigCheckView),),
        "config show": (Shape(view=views.ConfigValueView, many=True),),
        "plan": (Shape(view=json_views.PlanView), Shape(view=json_views.OpaquePlanView)),
        "import": (
            Shape(view=json_views.ImportView),
            Shape(view=json_views.ImportRefusalView),
        ),
        "powercap apply": (Shape(view=json_views.CapView),),
        "powercap verify": (Shape(view=json_views.CapView),),
        "token add": (Shape(view=json_views.NewTokenView),),
        "token list": (Shape(view=json_views.TokenListView),),
        "token revoke": (Shape(view=json_views.RevokedView),),
        "install-units": (Shape(view=json_views.UnitsView),),
    }
