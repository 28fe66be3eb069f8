"""The trained machine: its files, its predictions, and its descriptions and explanations."""

from mllkm_scale.model.describe import Description, describe
from mllkm_scale.model.evaluation import Evaluation, evaluate
from mllkm_scale.model.explanation import Explanation
from mllkm_scale.model.files import load_model, model_checksum, save_model
from mllkm_scale.model.model import Model
from mllkm_scale.model.profile import Profile
from mllkm_scale.model.record import ModelRecord
from mllkm_scale.model.serving.server import Server

__all__ = [
    "Description",
    "Evaluation",
    "Explanation",
    "Model",
    "ModelRecord",
    "Profile",
    "Server",
    "describe",
    "evaluate",
    "load_model",
    "model_checksum",
    "save_model",
]
