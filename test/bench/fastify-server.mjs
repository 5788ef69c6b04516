// The peer: fastify answering the same JSON, without a log. Prints its address as a gateway does. Argument: the folder it is installed in.
import { createRequire } from 'node:module'
import { join } from 'node:path'

const fastify = createRequire(join(process.argv[2], 'package.json'))('fastify')
const app = fastify()
app.all('/hello/:id', async () => ({ message: 'hello' }))
process.stdout.write(`ready ${await app.listen({ port: 0, host: '127.0.0.1' })}\n`)
