SELECT 0 AS delivery_state, 'available' AS word
UNION ALL SELECT 1 AS delivery_state, 'acquired' AS word
UNION ALL SELECT 2 AS delivery_state, 'acknowledged' AS word
UNION ALL SELECT 3 AS delivery_state, 'archiving' AS word
UNION ALL SELECT 4 AS delivery_state, 'archived' AS word
