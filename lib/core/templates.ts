/** What `fngw init` and `POST /_fn/function` write, one template per language. Owner: §1, page bin/init. */

import type { RuntimeName } from './identity.ts'

interface Template {
  runtime: RuntimeName
  fileName: string
  fileText: string
}

const NODE = `// Called for the methods in fn.config.json. Whatever is returned becomes JSON; { status, headers, body } sets more.
export async function handler(event) {
  const name = event.query.name ?? 'world'
  return { message: \`Hello, \${name}!\`, method: event.method }
}
`

const EVENT_TYPE = `interface HelloEvent {
  method: string
  query: Record<string, string>
}

`

const TS = NODE.replace('export', `${EVENT_TYPE}export`).replace('(event)', '(event: HelloEvent)')

const PYTHON = `"""Called for the methods in fn.config.json. Whatever is returned becomes JSON; status, headers and body set more."""


def handler(event):
    name = event["query"].get("name", "world")
    return {"message": f"Hello, {name}!", "method": event["method"]}
`

const PHP = `<?php
// Called for the methods in fn.config.json. Whatever is returned becomes JSON; status, headers and body set more.
function handler(array $event): array
{
    $name = $event['query']['name'] ?? 'world';
    return ['message' => "Hello, $name!", 'method' => $event['method']];
}
`

const LUA = `-- Called for the methods in fn.config.json. Whatever is returned becomes JSON; status, headers and body set more.
function handler(event)
  local name = event.query.name or "world"
  return { message = "Hello, " .. name .. "!", method = event.method }
end
`

const GO = `// Package hello is called for the methods in fn.config.json. An answer always has a status; headers and body are up to you.
package hello

func handler(event map[string]any) map[string]any {
	name, ok := event["query"].(map[string]any)["name"].(string)
	if !ok {
		name = "world"
	}
	body := map[string]any{"message": "Hello, " + name + "!", "method": event["method"]}
	return map[string]any{"status": 200, "body": body}
}
`

const RUST = `// Called for the methods in fn.config.json. An answer always has a status; headers and body are up to you.
use serde_json::{json, Value};

pub fn handler(event: Value) -> Value {
    let name = event["query"]["name"].as_str().unwrap_or("world");
    json!({
        "status": 200,
        "body": { "message": format!("Hello, {name}!"), "method": event["method"] }
    })
}
`

/** Templates of one function, each in its language. */
export const TEMPLATES = {
  node: { runtime: 'node', fileName: 'handler.js', fileText: NODE },
  ts: { runtime: 'node', fileName: 'handler.ts', fileText: TS },
  python: { runtime: 'python', fileName: 'handler.py', fileText: PYTHON },
  php: { runtime: 'php', fileName: 'handler.php', fileText: PHP },
  lua: { runtime: 'lua', fileName: 'handler.lua', fileText: LUA },
  go: { runtime: 'go', fileName: 'handler.go', fileText: GO },
  rust: { runtime: 'rust', fileName: 'handler.rs', fileText: RUST },
} as const satisfies Record<string, Template>

type LanguageName = keyof typeof TEMPLATES
export const LANGUAGE_NAMES = Object.keys(TEMPLATES) as readonly LanguageName[]

/** All templates: `api` is three routes, `spa` a page with a function. */
export const TEMPLATE_NAMES = [...LANGUAGE_NAMES, 'api', 'spa'] as const

export function isLanguage(name: string): name is LanguageName {
  return Object.hasOwn(TEMPLATES, name)
}

/** `fn.config.json` beside the handler: one explicit setting of each kind, ready to be changed. */
export function toConfigText(template: Template, schema: string, methods: readonly string[]): string {
  const config = {
    $schema: schema,
    runtime: template.runtime,
    entrypoint: template.fileName,
    timeout_ms: 2500,
    invoke: { methods, summary: 'Says hello' },
  }
  return `${JSON.stringify(config, null, 2)}\n`
}
