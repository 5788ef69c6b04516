<?php
// POST /invoice with [{"cents": 650, "count": 2}, ...] (PHP)
function handler(array $event): array
{
    $lines = json_decode($event['body'] ?? '', true);
    if (!is_array($lines) || $lines === []) {
        return ['status' => 400, 'body' => ['error' => 'the body must be a JSON array of lines']];
    }
    $total = 0;
    foreach ($lines as $line) {
        $total += (int) ($line['cents'] ?? 0) * (int) ($line['count'] ?? 1);
    }
    return ['status' => 201, 'body' => ['lines' => count($lines), 'total_cents' => $total]];
}
