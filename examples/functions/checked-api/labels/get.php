<?php
// @summary A label as plain text

function handler(array $event): array
{
    $times = (int) ($event['query']['times'] ?? 1);
    $text = $event['query']['text'];
    return [
        'status' => 200,
        'headers' => ['Content-Type' => 'text/plain; charset=utf-8'],
        'body' => implode("\n", array_fill(0, $times, $text)),
    ];
}
