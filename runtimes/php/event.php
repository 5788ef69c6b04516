<?php
/** The handler event, made from a `call` frame and what `start` told of the function. Page: invocation/event. */

declare(strict_types=1);

namespace Fngw;

final class EventMaker
{
    /** @var array<string, mixed> an event with every field present: absent values are null, `params` and `query` are [] */
    private array $base;

    /**
     * @param array<string, mixed> $env
     * @param array<string, mixed> $context the part that is the same for every call
     */
    public function __construct(array $env, array $context)
    {
        $this->base = [
            'id' => null,
            'ts' => null,
            'method' => null,
            'path' => null,
            'raw_path' => null,
            'params' => [],
            'path_params' => [],
            'query' => [],
            'headers' => [],
            'body' => null,
            'is_base64' => false,
            'body_base64' => null,
            'session' => null,
            'client' => ['ip' => null, 'ua' => null],
            'env' => $env,
            'context' => ['request_id' => null] + $context + ['user' => null, 'trigger' => null, 'trace' => null, 'trace_state' => null],
            'version' => $context['version'] ?? 'default',
        ];
    }

    /**
     * @param array<string, mixed> $call header of the `call` frame
     * @param string $body raw request body; '' is no body
     * @return array<string, mixed>
     */
    public function make(array $call, string $body): array
    {
        // Copies share their unchanged parts with the base, so env and context cost nothing per call.
        $event = $this->base;
        $event['id'] = $event['context']['request_id'] = $call['id'] ?? null;
        $event['ts'] = $call['ts'] ?? null;
        $event['method'] = $call['method'] ?? null;
        $event['path'] = $call['path'] ?? null;
        $event['raw_path'] = $call['raw_path'] ?? null;
        $event['params'] = $event['path_params'] = $call['params'] ?? [];
        $event['query'] = $call['query'] ?? [];
        $event['headers'] = $call['headers'] ?? [];
        $event['session'] = $call['session'] ?? null;
        $event['client'] = $call['client'] ?? $event['client'];
        if (isset($call['user'])) {
            $event['context']['user'] = $call['user'];
        }
        if (isset($call['trigger'])) {
            $event['context']['trigger'] = $call['trigger'];
        }
        if (isset($call['trace'])) {
            $event['context']['trace'] = $call['trace'];
        }
        if (isset($call['trace_state'])) {
            $event['context']['trace_state'] = $call['trace_state'];
        }
        if ($body !== '') {
            if (\preg_match('//u', $body) === 1) {
                $event['body'] = $body;
            } else {
                $event['is_base64'] = true;
                $event['body_base64'] = \base64_encode($body);
            }
        }
        return $event;
    }
}
