// Loaded by spare workers, so that the compiler is ready before the first TypeScript handler comes.
export const ready: boolean = true
