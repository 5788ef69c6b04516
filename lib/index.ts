/** Public names of the package. Owner: §1. */

/// <reference types="node" preserve="true" />

export type { FunctionVersion, Policy } from './core/catalog.ts'
export type { Clock } from './core/clock.ts'
export { type ErrorCode, type ErrorDetail, GatewayError, type Warning } from './core/errors.ts'
export type { RuntimeName } from './core/identity.ts'
export type { Settings, SettingsInput, SettingSource } from './config/settings.ts'
export type { InjectRequest, InjectResponse } from './http/inject.ts'
export { type Listening, ListenError } from './http/server.ts'
export type { GatewayListening, HandedSockets, ListenAddress } from './gateway/listeners.ts'
export type { InternalResult } from './invocation/internal-call.ts'
export type { JobInput } from './jobs/job-input.ts'
export type { JobRecord } from './jobs/job.ts'
export type { GatewayJobs } from './jobs/jobs.ts'
export type {
  BuildRecord,
  EventName,
  JobEventRecord,
  LinesTaker,
  Listener,
  LogRecord,
  ReloadRecord,
  RequestRecord,
  ScheduleRecord,
} from './observe/events.ts'
export type {
  FnContext,
  FnEnvelope,
  FnEvent,
  FnHandler,
  FnLambdaContext,
  FnLambdaEvent,
  FnProxy,
  FnResponse,
  FnWorkerContext,
} from './handler-types.ts'
export type { InvokeRequest, InvokeResult } from './gateway/catalog-loader.ts'
export type { DoctorCheck } from './gateway/doctor.ts'
export { createGateway } from './gateway/gateway.ts'
export {
  type CloseOptions,
  type Gateway,
  type GatewayExplanation,
  type GatewayOptions,
  SettingsError,
} from './gateway/options.ts'
export {
  type RemoteDaemon,
  RemoteDaemonError,
  type RemoteDaemonOptions,
  startRemoteDaemon,
} from './remote/remote-daemon.ts'
