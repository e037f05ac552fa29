"""Every setting of every command: the field of a dataclass is the one home of its default, its type and its help.

A key that stands in no dataclass, or a value of another type, is refused before anything runs; a dataclass built in
Python is what `svt` would compose. This package imports neither torch nor Hydra, so that `svt --help` stays instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svtoolkit.config.command_table import COMMANDS
from svtoolkit.config.setting import REQUIRED, setting
from svtoolkit.system.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from svtoolkit.config.backends import BackendConfig, LDAConfig, PLDAConfig, WhiteningConfig
    from svtoolkit.config.commands import (
        AverageConfig,
        CompletionConfig,
        ConvertModelConfig,
        CopyConfig,
        EnsembleConfig,
        MemoryPredictionConfig,
        ModelsConfig,
        PlanConfig,
        PublishConfig,
        RecipeConfig,
        ReverseConfig,
        ReversibilityConfig,
    )
    from svtoolkit.config.compressed_model import CompressModelConfig
    from svtoolkit.config.compression import CompressConfig, DistillationConfig, TwoStageConfig
    from svtoolkit.config.data import (
        ArchivesConfig,
        ComputeFeaturesConfig,
        ConvertConfig,
        PrepareConfig,
        ShardConfig,
        ValidateConfig,
    )
    from svtoolkit.config.deploy import ExportConfig
    from svtoolkit.config.features import FeaturesConfig
    from svtoolkit.config.fusion import FuseConfig, QualityConfig
    from svtoolkit.config.loggers import MLflowConfig, WandbConfig
    from svtoolkit.config.losses import (
        AngularPrototypicalConfig,
        LossConfig,
        PairwiseConfig,
        SphereFace2Config,
        SubcenterLossConfig,
        TopKLossConfig,
    )
    from svtoolkit.config.memory import (
        CheckpointConfig,
        MemoryStrategyConfig,
        OffloadConfig,
        PlannedConfig,
        RecomputeNormConfig,
    )
    from svtoolkit.config.networks import (
        EmbeddingLayersConfig,
        ERes2NetV2Config,
        InvertibleConfig,
        MembersConfig,
        ModelConfig,
        OnnxConfig,
        PooledConfig,
        ReDimNet2SizesConfig,
        ReDimNetSizesConfig,
        RepVggConfig,
        Res2NetConfig,
        ResNetConfig,
        ReversedResNetConfig,
        RevNetConfig,
        SpeakerNetConfig,
        SpeechBrainConfig,
        TitaNetConfig,
        TransformersXVectorConfig,
    )
    from svtoolkit.config.optimizers import (
        AdamW8bitConfig,
        AdamWConfig,
        Muon8bitConfig,
        MuonConfig,
        OptimConfig,
        SGD8bitConfig,
        SGDConfig,
    )
    from svtoolkit.config.scoring import (
        CalibrateConfig,
        CompareConfig,
        EmbedConfig,
        EnrolConfig,
        EnrolledConfig,
        EvaluateConfig,
        ForgetConfig,
        IdentifyConfig,
        ReportConfig,
        ScoreConfig,
        SearchConfig,
        VerifyConfig,
    )
    from svtoolkit.config.serving import ServeConfig
    from svtoolkit.config.training import (
        AugmentConfig,
        CrossvalConfig,
        MarginScheduleConfig,
        ScheduleConfig,
        TrainConfig,
        TrainDataConfig,
        TrainerConfig,
        ValidationConfig,
    )

__getattr__ = lazy_imports(
    __name__,
    {
        "backends": "BackendConfig LDAConfig PLDAConfig WhiteningConfig",
        "commands": (
            "AverageConfig CompletionConfig ConvertModelConfig CopyConfig EnsembleConfig MemoryPredictionConfig "
            "ModelsConfig PlanConfig PublishConfig RecipeConfig ReverseConfig ReversibilityConfig"
        ),
        "compressed_model": "CompressModelConfig",
        "compression": "CompressConfig DistillationConfig TwoStageConfig",
        "data": "ArchivesConfig ComputeFeaturesConfig ConvertConfig PrepareConfig ShardConfig ValidateConfig",
        "deploy": "ExportConfig",
        "features": "FeaturesConfig",
        "fusion": "FuseConfig QualityConfig",
        "loggers": "MLflowConfig WandbConfig",
        "losses": (
            "AngularPrototypicalConfig LossConfig PairwiseConfig SphereFace2Config SubcenterLossConfig TopKLossConfig"
        ),
        "memory": "CheckpointConfig MemoryStrategyConfig OffloadConfig PlannedConfig RecomputeNormConfig",
        "networks": (
            "EmbeddingLayersConfig ERes2NetV2Config InvertibleConfig MembersConfig ModelConfig OnnxConfig PooledConfig "
            "ReDimNet2SizesConfig ReDimNetSizesConfig RepVggConfig Res2NetConfig ResNetConfig "
            "ReversedResNetConfig RevNetConfig SpeakerNetConfig SpeechBrainConfig TitaNetConfig "
            "TransformersXVectorConfig"
        ),
        "optimizers": "AdamW8bitConfig AdamWConfig Muon8bitConfig MuonConfig OptimConfig SGD8bitConfig SGDConfig",
        "scoring": (
            "CalibrateConfig CompareConfig EmbedConfig EnrolConfig EnrolledConfig EvaluateConfig ForgetConfig "
            "IdentifyConfig ReportConfig ScoreConfig SearchConfig VerifyConfig"
        ),
        "serving": "ServeConfig",
        "training": (
            "AugmentConfig CrossvalConfig MarginScheduleConfig ScheduleConfig TrainConfig TrainDataConfig "
            "TrainerConfig ValidationConfig"
        ),
    },
)
