"""Every setting of every command: the field of a dataclass is the one home of its default, its type and its help.

A key that stands in no dataclass, or a value of another type, is refused before anything runs; a dataclass built in
Python is what `svt` would compose. This package imports neither torch nor Hydra, so that `svt --help` stays instant.
"""

from __future__ import annotations

from svtoolkit.config.commands import (
    COMMANDS,
    AverageConfig,
    CompletionConfig,
    ConvertModelConfig,
    CopyConfig,
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
from svtoolkit.config.setting import REQUIRED, setting
from svtoolkit.config.training import (
    AdamW8bitConfig,
    AdamWConfig,
    AugmentConfig,
    CrossvalConfig,
    FeaturesConfig,
    MarginScheduleConfig,
    OptimConfig,
    ScheduleConfig,
    SGD8bitConfig,
    SGDConfig,
    TrainConfig,
    TrainDataConfig,
    TrainerConfig,
    ValidationConfig,
)
