package org.apache.kafka.connect.mirror;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.util.Base64;
import java.util.OptionalLong;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads one JSON object from standard input and prints it with what MirrorMaker 2's own classes make of it: the bytes of
 * offset syncs and checkpoints, and the translation of offsets by a list of syncs.
 */
public final class MirrorRecords {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TopicPartition PART = new TopicPartition("t", 0);

    /** A store that counts as read to its end: every sync is kept as in a running connector. */
    private static final class Store extends OffsetSyncStore {
        Store() {
            readToEnd = true;
        }

        void add(long upstream, long downstream) {
            OffsetSync sync = new OffsetSync(PART, upstream, downstream);
            handleRecord(new ConsumerRecord<>("syncs", 0, 0, sync.recordKey(), sync.recordValue()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectNode input = (ObjectNode) JSON.readTree(System.in);
        for (JsonNode node : input.get("offset_syncs")) {
            TopicPartition part = new TopicPartition(node.get("topic").asText(), node.get("partition").asInt());
            OffsetSync sync = new OffsetSync(part, number(node, "upstream_offset"), number(node, "downstream_offset"));
            put((ObjectNode) node, sync.recordKey(), sync.recordValue());
        }
        for (JsonNode node : input.get("checkpoints")) {
            TopicPartition part = new TopicPartition(node.get("topic").asText(), node.get("partition").asInt());
            Checkpoint checkpoint = new Checkpoint(node.get("group_id").asText(), part, number(node, "upstream_offset"),
                number(node, "downstream_offset"), node.get("metadata").asText());
            put((ObjectNode) node, checkpoint.recordKey(), checkpoint.recordValue());
        }
        for (JsonNode node : input.get("translations")) {
            translate((ObjectNode) node);
        }
        System.out.println(JSON.writeValueAsString(input));
    }

    private static void translate(ObjectNode node) {
        Store store = new Store();
        for (JsonNode sync : node.get("syncs")) {
            store.add(sync.get(0).asLong(), sync.get(1).asLong());
        }
        ArrayNode answers = node.putArray("answers");
        for (JsonNode offset : node.get("offsets")) {
            OptionalLong answer = store.translateDownstream("g", PART, offset.asLong());
            answers.add(answer.isPresent() ? answer.getAsLong() : -2);
        }
    }

    private static long number(JsonNode node, String name) {
        return node.get(name).asLong();
    }

    private static void put(ObjectNode node, byte[] key, byte[] value) {
        node.put("key", Base64.getEncoder().encodeToString(key));
        node.put("value", Base64.getEncoder().encodeToString(value));
    }
}
