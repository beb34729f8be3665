package org.apache.kafka.coordinator.share;

import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Kafka's own decoding and replay, a round at a time on one thread. Argument: a file of records (int32 state partition,
 * int64 offset, int32 length and key, int32 length and value, length -1 for null). Every line of standard input,
 * "decode" or "replay", runs one round over all records and is answered with its CPU nanoseconds and a count.
 */
public final class KafkaRounds {
    private int[] partitions;
    private long[] offsets;
    private byte[][] keys;
    private byte[][] values;

    public static void main(String[] arguments) throws Exception {
        KafkaRounds rounds = new KafkaRounds();
        rounds.read(Path.of(arguments[0]));
        System.out.println("ready");
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            long before = threads.getCurrentThreadCpuTime();
            long count = order.equals("decode") ? rounds.decode() : rounds.replay();
            System.out.println((threads.getCurrentThreadCpuTime() - before) + " " + count);
        }
    }

    private void read(Path file) throws Exception {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(file), 1 << 20))) {
            int count = in.readInt();
            partitions = new int[count];
            offsets = new long[count];
            keys = new byte[count][];
            values = new byte[count][];
            for (int row = 0; row < count; row++) {
                partitions[row] = in.readInt();
                offsets[row] = in.readLong();
                keys[row] = octets(in);
                values[row] = octets(in);
            }
        }
    }

    private static byte[] octets(DataInputStream in) throws Exception {
        int length = in.readInt();
        return length < 0 ? null : in.readNBytes(length);
    }

    private CoordinatorRecord record(ShareCoordinatorRecordSerde serde, int row) {
        try {
            return serde.deserialize(buffer(keys[row]), buffer(values[row]));
        } catch (RuntimeException unreadable) {
            return null;
        }
    }

    private static ByteBuffer buffer(byte[] octets) {
        return octets == null ? null : ByteBuffer.wrap(octets);
    }

    private long decode() {
        ShareCoordinatorRecordSerde serde = new ShareCoordinatorRecordSerde();
        long decoded = 0;
        for (int row = 0; row < keys.length; row++) {
            decoded += record(serde, row) == null ? 0 : 1;
        }
        return decoded;
    }

    private long replay() {
        ShareCoordinatorRecordSerde serde = new ShareCoordinatorRecordSerde();
        Map<Integer, ShareCoordinatorShard> shards = new HashMap<>();
        for (int row = 0; row < keys.length; row++) {
            CoordinatorRecord record = record(serde, row);
            if (record != null) {
                ShareCoordinatorShard shard = shards.computeIfAbsent(partitions[row], KafkaRounds::newShard);
                shard.replay(offsets[row], -1L, (short) -1, record);
            }
        }
        return shards.size();
    }

    private static ShareCoordinatorShard newShard(int partition) {
        LogContext context = new LogContext();
        ShareCoordinatorConfig config =
            new ShareCoordinatorConfig(new AbstractConfig(ShareCoordinatorConfig.CONFIG_DEF, Map.of(), false));
        return new ShareCoordinatorShard(context, config, null, null, new SnapshotRegistry(context), Time.SYSTEM);
    }
}
