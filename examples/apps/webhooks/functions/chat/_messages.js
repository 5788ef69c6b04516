// A stand-in for a chat service, so that the example needs no account. In memory only.
const messages = new Map()

/** A job may run twice, so the receiver keeps one message per id. */
export const keep = message => messages.set(message.id, message.text)

export const list = () => [...messages.values()]
