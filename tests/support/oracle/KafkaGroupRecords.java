package org.apache.kafka.coordinator.group;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;

/**
 * Reads and writes records of __consumer_offsets with the group coordinator's own serde. The first line of output has
 * every record type as id=NAME; then, for each line "key value" (hex; "-" for a null value), its JSON and its bytes.
 */
public final class KafkaGroupRecords {
    public static void main(String[] arguments) throws Exception {
        StringBuilder types = new StringBuilder();
        for (CoordinatorRecordType type : CoordinatorRecordType.values()) {
            types.append(type.id()).append('=').append(type).append(' ');
        }
        System.out.println(types.toString().trim());
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        HexFormat hex = HexFormat.of();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            ByteBuffer value = parts[1].equals("-") ? null : ByteBuffer.wrap(hex.parseHex(parts[1]));
            CoordinatorRecord record = serde.deserialize(ByteBuffer.wrap(hex.parseHex(parts[0])), value);
            String content = "null";
            if (record.value() != null) {
                ApiMessage message = record.value().message();
                short version = record.value().version();
                content = CoordinatorRecordJsonConverters.writeRecordValueAsJson(message, version).toString();
            }
            byte[] again = serde.serializeValue(record);
            System.out.println(CoordinatorRecordJsonConverters.writeRecordKeyAsJson(record.key()));
            System.out.println(content);
            System.out.println(hex.formatHex(serde.serializeKey(record)) + " " + (again == null ? "-" : hex.formatHex(again)));
        }
    }
}
