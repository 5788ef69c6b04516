<?php
const FOLDER = __DIR__ . '/../../data/reports';

function is_authorized(array $event): bool
{
    return hash_equals("Bearer {$event['env']['REPORTS_KEY']}", $event['headers']['authorization'] ?? '');
}

const UNAUTHORIZED = [
    'status' => 401,
    'headers' => ['WWW-Authenticate' => 'Bearer'],
    'body' => ['error' => 'send the key: Authorization: Bearer <key>'],
];
