/** Where a gateway is between its start and its end. Owner: §1. */

export interface Lifecycle {
  /** True until the tree is read and the runtimes are up or have a reason why not. */
  starting: boolean
  /** True from the beginning of a stop on. */
  draining: boolean
  /** Connections that their next answers are to end: other processes of the gateway have fewer. */
  toShed?: number
}
