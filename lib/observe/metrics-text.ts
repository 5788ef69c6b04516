/** Metrics as Prometheus reads them, text format 0.0.4. Owner: page observe/metrics. */

/** Names and values of labels, in the order they are shown. */
type Labels = Readonly<Record<string, string>>

type FamilyType = 'counter' | 'gauge' | 'histogram'

/** Families of samples, in pieces of text: whoever sends them may pause between two. */
export type MetricSource = () => Iterable<string>

/** The two lines before a family's samples. */
export function toFamilyHead(name: string, type: FamilyType, help: string): string {
  return `# HELP ${name} ${escapeText(help)}\n# TYPE ${name} ${type}\n`
}

/** The labels of a sample without their braces. */
export function toLabels(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${escapeText(value).replaceAll('"', '\\"')}"`)
    .join(',')
}

/** @param labels - as `toLabels` makes them; empty for none */
export function toSample(name: string, labels: string, value: number): string {
  return labels === '' ? `${name} ${value}\n` : `${name}{${labels}} ${value}\n`
}

/** A family whose samples are at hand; none are no family. */
export function toFamily(
  name: string,
  type: FamilyType,
  help: string,
  samples: Iterable<readonly [labels: Labels, value: number]>,
): string {
  let text = ''
  for (const [labels, value] of samples) text += toSample(name, toLabels(labels), value)
  return text === '' ? '' : toFamilyHead(name, type, help) + text
}

function escapeText(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}
