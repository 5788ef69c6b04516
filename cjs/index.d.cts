/** Types for CommonJS under `node16`, whose compilers refuse to require what is declared as a module. */

import type * as fngw from '../dist/lib/index.js' with { 'resolution-mode': 'import' }

export type * from '../dist/lib/index.js' with { 'resolution-mode': 'import' }

export declare const createGateway: typeof fngw.createGateway
export declare const GatewayError: typeof fngw.GatewayError
export type GatewayError = fngw.GatewayError
export declare const ListenError: typeof fngw.ListenError
export type ListenError = fngw.ListenError
export declare const SettingsError: typeof fngw.SettingsError
export type SettingsError = fngw.SettingsError
export declare const startRemoteDaemon: typeof fngw.startRemoteDaemon
export declare const RemoteDaemonError: typeof fngw.RemoteDaemonError
export type RemoteDaemonError = fngw.RemoteDaemonError
