/**
 * Does something without the rights of root, who may read and write everything, so that what files may be read and written counts for all who run the tests.
 *
 * Whoever is not root stays who they are.
 */
export async function asNobody<T>(action: () => Promise<T>): Promise<T> {
  if (process.geteuid?.() !== 0) return action()
  process.seteuid?.(65_534)
  try {
    return await action()
  } finally {
    process.seteuid?.(0)
  }
}
