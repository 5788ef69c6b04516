// What keeps a test file's process from ending, told when it is asked: test/run.mjs asks before it kills one that is late.

export const ASK_SIGNAL = 'SIGUSR2'

export function tellWhatIsOpen() {
  process.on(ASK_SIGNAL, () => {
    const lines = process._getActiveHandles().map(handle => `  ${toLine(handle)}`)
    const kinds = process.getActiveResourcesInfo().join(' ')
    process._rawDebug([`what is open: ${kinds}`, ...lines].join('\n'))
  })
}

/** @returns kind of the handle, and by what it may be known */
function toLine(handle) {
  const { pid, spawnargs, localPort, remotePort, destroyed, listening } = handle
  const facts = { pid, spawned: spawnargs?.join(' ').slice(0, 200), localPort, remotePort, destroyed, listening }
  if (listening) facts.at = JSON.stringify(handle.address())
  const told = Object.entries(facts).filter(([, value]) => value !== undefined && value !== null)
  return [handle.constructor?.name, ...told.map(([name, value]) => `${name}=${value}`)].join(' ')
}
