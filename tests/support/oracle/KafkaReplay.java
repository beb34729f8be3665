package org.apache.kafka.coordinator.share;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.Deserializer;
import org.apache.kafka.coordinator.share.generated.ShareSnapshotKey;
import org.apache.kafka.coordinator.share.generated.ShareUpdateKey;
import org.apache.kafka.coordinator.share.metrics.ShareCoordinatorMetrics;
import org.apache.kafka.server.share.SharePartitionKey;

/**
 * Replays a record dump (standard input, one JSON object a line) with Kafka's own share coordinator and prints one JSON
 * object a share partition: the answer that acktrail's replay is held against. A record of an unknown type is passed
 * over, as the coordinator's loader does. An empty line ends a dump and prints one; what follows is another dump.
 */
public final class KafkaReplay {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<Integer, ShareCoordinatorShard> shards = new LinkedHashMap<>();
    private final Map<Integer, Set<SharePartitionKey>> keys = new LinkedHashMap<>();
    private final ShareCoordinatorRecordSerde serde = new ShareCoordinatorRecordSerde();

    public static void main(String[] arguments) throws Exception {
        KafkaReplay replay = new KafkaReplay();
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.isEmpty()) {
                replay.print(out);
                out.println();
                replay = new KafkaReplay();
            } else {
                replay.add(JSON.readTree(line));
            }
        }
        replay.print(out);
    }

    private void add(JsonNode line) throws Exception {
        int partition = line.get("partition").asInt();
        CoordinatorRecord record;
        try {
            record = serde.deserialize(buffer(line.get("key")), buffer(line.get("value")));
        } catch (Deserializer.UnknownRecordTypeException unknown) {
            return;
        }
        ShareCoordinatorShard shard = shards.computeIfAbsent(partition, KafkaReplay::newShard);
        keys.computeIfAbsent(partition, ignored -> new LinkedHashSet<>()).add(keyOf(record));
        shard.replay(line.get("offset").asLong(), -1L, (short) -1, record);
    }

    private static ByteBuffer buffer(JsonNode node) throws Exception {
        return node.isNull() ? null : ByteBuffer.wrap(node.binaryValue());
    }

    private static SharePartitionKey keyOf(CoordinatorRecord record) {
        if (record.key() instanceof ShareSnapshotKey key) {
            return SharePartitionKey.getInstance(key.groupId(), key.topicId(), key.partition());
        }
        ShareUpdateKey key = (ShareUpdateKey) record.key();
        return SharePartitionKey.getInstance(key.groupId(), key.topicId(), key.partition());
    }

    private static ShareCoordinatorShard newShard(int partition) {
        ShareCoordinatorConfig config = new ShareCoordinatorConfig(
            new AbstractConfig(ShareCoordinatorConfig.CONFIG_DEF, Map.of(), false));
        try {
            return new ShareCoordinatorShard.Builder(config)
                .withSnapshotRegistry(Registries.newRegistry())
                .withCoordinatorMetrics(new ShareCoordinatorMetrics())
                .withTopicPartition(new TopicPartition("__share_group_state", partition))
                .withTime(Time.SYSTEM)
                .build();
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    private void print(PrintStream out) throws Exception {
        for (Map.Entry<Integer, ShareCoordinatorShard> entry : shards.entrySet()) {
            for (SharePartitionKey key : keys.get(entry.getKey())) {
                ShareGroupOffset state = entry.getValue().getShareStateMapValue(key);
                if (state != null) {
                    out.println(JSON.writeValueAsString(form(key, state)));
                }
            }
        }
        out.flush();
    }

    /** Kafka 4.1 has none. */
    private static Integer deliveryCompleteCount(ShareGroupOffset state) throws Exception {
        try {
            int count = (int) ShareGroupOffset.class.getMethod("deliveryCompleteCount").invoke(state);
            return count == -1 ? null : count;
        } catch (NoSuchMethodException older) {
            return null;
        }
    }

    private static ObjectNode form(SharePartitionKey key, ShareGroupOffset state) throws Exception {
        ObjectNode form = JSON.createObjectNode();
        form.put("group", key.groupId());
        form.put("topic_id", key.topicId().toString());
        form.put("partition", key.partition());
        form.put("state_epoch", state.stateEpoch());
        form.put("snapshot_epoch", state.snapshotEpoch());
        form.put("leader_epoch", state.leaderEpoch());
        form.put("start_offset", state.startOffset());
        form.put("delivery_complete_count", deliveryCompleteCount(state));
        ArrayNode batches = form.putArray("batches");
        state.stateBatches().forEach(batch -> batches.addArray()
            .add(batch.firstOffset()).add(batch.lastOffset()).add(batch.deliveryState()).add(batch.deliveryCount()));
        return form;
    }
}
