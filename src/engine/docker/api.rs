//! What this module uses of the library.

pub(super) use bollard::container::PathStatResponse;
pub(super) use bollard::errors::Error;
pub(super) use bollard::models::{
    ChangeType, ContainerConfig, ContainerCreateBody, ContainerInspectResponse, ContainerState,
    ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum, ContainerTopResponse,
    EventMessage, ExecConfig, FilesystemChange, HostConfig, ImageConfig, ImageInspect, ImageSummary, Mount,
    MountPoint, MountType, PortBinding, PortSummaryTypeEnum, RestartPolicy, RestartPolicyNameEnum,
    SystemInfo,
};
pub(super) use bollard::query_parameters::{
    CommitContainerOptionsBuilder, ContainerArchiveInfoOptionsBuilder, CreateContainerOptionsBuilder,
    CreateImageOptionsBuilder, ListImagesOptionsBuilder, RemoveContainerOptionsBuilder,
    RemoveImageOptionsBuilder, RenameContainerOptionsBuilder, ResizeExecOptionsBuilder, StatsOptionsBuilder,
    StopContainerOptionsBuilder, TagImageOptionsBuilder,
};
pub(super) use bollard::{API_DEFAULT_VERSION, BollardRequest as Request, Docker};
